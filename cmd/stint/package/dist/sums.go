package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// sumsName is the file of the checksums, in the form of sha256sum, which checks
// them by: sha256sum -c SHA256SUMS.
const sumsName = "SHA256SUMS"

// checksums are the files that were created, in order: "digest  name".
type checksums []string

// create writes a file of dir and keeps its checksum.
func (c *checksums) create(dir, name string, write func(io.Writer) error) error {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return fmt.Errorf("create the archive: %w", err)
	}
	hash := sha256.New()
	err = write(io.MultiWriter(f, hash))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	*c = append(*c, hex.EncodeToString(hash.Sum(nil))+"  "+name)
	return nil
}

// last is the digest of the last file.
func (c checksums) last() string {
	digest, _, _ := strings.Cut(c[len(c)-1], " ")
	return digest
}

// write writes the file of checksums into dir.
func (c checksums) write(dir string) error {
	text := strings.Join(c, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(dir, sumsName), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the checksums: %w", err)
	}
	return nil
}
