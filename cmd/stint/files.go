package main

import (
	"fmt"
	"log/slog"
)

// reservedFiles is how many open files the process needs besides listeners and
// max-clients: about a dozen for the runtime, the log and the state, the rest
// for what is opened for a moment. As without clients a server is of no use, it
// starts with as many, and serves some clients from what it does not need yet.
const reservedFiles = 32

// fewFilesError says that the system lets the process open too few files. Below
// about eight Go's own runtime would end it, with a page of addresses.
type fewFilesError struct{ most, least uint64 }

func (e *fewFilesError) Error() string {
	return fmt.Sprintf("the system lets this process open %d files only, and at least %d are needed: raise the limit (ulimit -n, LimitNOFILE= of systemd)", e.most, e.least)
}

// enoughFiles returns a *fewFilesError when most files, 0 for an unknown
// number, are not enough for the number of listeners.
func enoughFiles(most uint64, listeners int) error {
	if least := uint64(reservedFiles + listeners); most > 0 && most < least {
		return &fewFilesError{most, least}
	}
	return nil
}

// clientsFit returns a sentence when most files, 0 for an unknown number, are
// not surely enough for so many clients beside the listeners.
func clientsFit(most uint64, clients, listeners int) error {
	others := uint64(reservedFiles + listeners)
	switch {
	case most == 0 || uint64(clients)+others <= most:
		return nil
	case most <= others:
		return &fewFilesError{most, others + 1}
	}
	return fmt.Errorf("the system lets this process open %d files only, sure to be enough for %d clients: raise the limit (ulimit -n, LimitNOFILE= of systemd) or try with %d", most, most-others, most-others)
}

// warnFiles logs when most files, 0 for an unknown number, are not enough for
// max-clients.
func warnFiles(most uint64, cfg *Config, log *slog.Logger) {
	others := uint64(reservedFiles + len(cfg.Addr))
	if most == 0 || uint64(cfg.MaxClients)+others <= most {
		return
	}
	fit := uint64(0)
	if most > others {
		fit = most - others
	}
	log.Warn("the system lets this process open fewer files than --max-clients needs: raise the limit (ulimit -n)",
		"limit", most, "max-clients", int64(cfg.MaxClients), "sure", fit)
}
