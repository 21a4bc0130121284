package main

import (
	"io/fs"
	"log/slog"
	"os"

	"github.com/stint-dev/stint/server"
)

// secrets are what options name the files of.
type secrets struct {
	password string               // "": none
	certs    *server.Certificates // nil: no TLS
}

// secrets reads them. The error is an *optionError.
func (c *Config) secrets() (with secrets, err error) {
	if with.password, err = c.Password(); err != nil {
		return with, err
	}
	with.certs, err = c.Certificates()
	return with, err
}

// warnPassword logs when everybody can read the file of the password.
func warnPassword(cfg *Config, log *slog.Logger) {
	if mode, all := readableByAll(cfg.RequirepassFile); all {
		log.Warn("other users of this machine can read the password file", "file", cfg.RequirepassFile, "mode", mode.String())
	}
}

// warnKey logs when everybody can read the file of the key.
func warnKey(cfg *Config, log *slog.Logger) {
	if mode, all := readableByAll(cfg.TLSKey); all {
		log.Warn("other users of this machine can read the TLS key", "file", cfg.TLSKey, "mode", mode.String())
	}
}

// readableByAll reports the mode of a file and whether it lets every user of
// the machine read. A group that may is on purpose: it is how a service reads
// what root owns, and systemd's credentials have mode 0440. A file that is not
// there, or an empty path, is readable by nobody.
func readableByAll(path string) (mode fs.FileMode, all bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, false
	}
	mode = info.Mode().Perm()
	return mode, mode&0o004 != 0
}
