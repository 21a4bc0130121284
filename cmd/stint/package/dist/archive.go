package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name string // within the archive's folder, with slashes
	mode int64  // permissions
	data []byte
}

// Permissions of what is in an archive, whatever they are in the work tree.
const (
	modeFile    = 0o644
	modeProgram = 0o755
	modeFolder  = 0o755
)

// files are copied as they are: where they are in the repository, and where in
// an archive. A pattern's files keep their names.
var files = []struct{ from, to string }{
	{"README.md", "."},
	{"LICENSE", "."},
	{"CHANGELOG.md", "."},
	{"docs/*.md", "docs"},
	{"docs/*.svg", "docs"},
	{"cmd/stint/package/stint.yaml", "package"},
	{"cmd/stint/package/stint.service", "package"},
	{"cmd/stint/package/sysusers.conf", "package"},
	{"cmd/stint/package/password.conf", "package"},
}

// entries builds the server for a target and gathers what goes beside it.
func (r *release) entries(ctx context.Context, t target) ([]entry, error) {
	dir, err := os.MkdirTemp("", "stint-dist-")
	if err != nil {
		return nil, fmt.Errorf("create a folder for the build: %w", err)
	}
	defer os.RemoveAll(dir)
	binary, err := r.build(ctx, t, dir)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read what was built: %w", err)
	}
	licences, err := r.licences(ctx, binary)
	if err != nil {
		return nil, err
	}
	all := []entry{
		{t.binaryName(), modeProgram, program},
		{"THIRD-PARTY-LICENSES", modeFile, licences},
	}
	for _, f := range files {
		paths, err := filepath.Glob(filepath.Join(r.root, filepath.FromSlash(f.from)))
		if err != nil {
			return nil, err
		}
		if len(paths) == 0 && path.Base(f.from)[0] != '*' {
			return nil, fmt.Errorf("%s is not there", f.from)
		}
		for _, p := range paths {
			data, err := os.ReadFile(p)
			if err != nil {
				return nil, fmt.Errorf("read what goes into the archive: %w", err)
			}
			all = append(all, entry{path.Join(f.to, filepath.Base(p)), modeFile, data})
		}
	}
	return all, nil
}

// writeArchive writes entries as a gzipped tar file, in one folder. The bytes
// depend on the arguments alone: names are sorted, everything is root's and of
// one date, and nothing says where or when it was packed.
func writeArchive(w io.Writer, folder string, date time.Time, entries []entry) error {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.name, b.name) })

	// Level 9 of compress/gzip, whose header has neither name nor time unless
	// they are set.
	zip, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	out := tar.NewWriter(zip)
	add := func(name string, kind byte, mode int64, data []byte) error {
		// USTAR has whole seconds and no extensions, whose form could differ.
		err := out.WriteHeader(&tar.Header{
			Typeflag: kind, Name: path.Join(folder, name), Mode: mode,
			Size: int64(len(data)), ModTime: date, Format: tar.FormatUSTAR,
		})
		if err == nil {
			_, err = out.Write(data)
		}
		if err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
		return nil
	}
	made := map[string]bool{}
	for _, e := range entries {
		if dir := path.Dir(e.name); !made[dir] {
			made[dir] = true
			if err := add(dir, tar.TypeDir, modeFolder, nil); err != nil {
				return err
			}
		}
		if err := add(e.name, tar.TypeReg, e.mode, e.data); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("end the archive: %w", err)
	}
	if err := zip.Close(); err != nil {
		return fmt.Errorf("end the archive: %w", err)
	}
	return nil
}
