package main

import (
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/stint-dev/stint/server"
)

// lookAtCertificate is how often a running server looks whether its certificate
// is about to expire: a warning a day is seen, and does not fill the log.
const lookAtCertificate = 24 * time.Hour

// reloader reads the files of TLS and of the password again when a SIGHUP asks
// for it, and warns of a certificate that expires. Systems without that signal
// never send it.
type reloader struct {
	cfg   *Config
	certs *server.Certificates // nil: no TLS
	told  *manager             // of each reload
	log   *slog.Logger
	hup   chan os.Signal // holds one: those that come meanwhile ask for nothing else

	done  chan struct{} // closed by stop
	ended chan struct{} // the goroutine has ended; nil: there was none
}

// hangups begins to take SIGHUP, whose default is to end the process. It is
// obeyed from run on.
func hangups(cfg *Config, certs *server.Certificates, told *manager, log *slog.Logger) *reloader {
	r := &reloader{cfg: cfg, certs: certs, told: told, log: log, hup: make(chan os.Signal, 1), done: make(chan struct{})}
	signal.Notify(r.hup, syscall.SIGHUP)
	return r
}

// run obeys, on a goroutine of its own. setPassword is told the password.
func (r *reloader) run(setPassword func(string) (changed bool)) {
	r.ended = make(chan struct{})
	ticker := time.NewTicker(lookAtCertificate)
	go func() {
		defer close(r.ended)
		defer ticker.Stop()
		for {
			select {
			case <-r.hup:
				r.told.reload(func() { r.reload(setPassword) })
			case now := <-ticker.C:
				if r.certs != nil {
					warnCertificate(r.certs.Info(), now, r.log)
				}
			case <-r.done:
				return
			}
		}
	}()
}

// stop ends the goroutine and waits for it, but no longer than within: a file on
// a mount that hangs, or a pipe that nobody writes to, keeps it reading, and
// nothing can end that. A SIGHUP is ignored from now on: the process is about to
// end by itself.
func (r *reloader) stop(within time.Duration) {
	signal.Ignore(syscall.SIGHUP)
	close(r.done)
	if r.ended == nil {
		return
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-r.ended:
	case <-timer.C:
		r.log.Warn("a file that SIGHUP asked to read again gives neither data nor an error; the server ends without it",
			"tls_cert", r.cfg.TLSCert, "tls_key", r.cfg.TLSKey, "tls_ca", r.cfg.TLSCa, "requirepass_file", r.cfg.RequirepassFile)
	}
}

// reload reads what there is to read. What is wrong changes nothing.
func (r *reloader) reload(setPassword func(string) (changed bool)) {
	if r.certs == nil && r.cfg.RequirepassFile == "" {
		r.log.Info("SIGHUP: there is nothing to read again, as neither --tls-cert nor --requirepass-file is given")
		return
	}
	if r.certs != nil {
		if err := r.certs.Reload(); err != nil {
			r.log.Error("SIGHUP: the TLS files are not taken over, the ones from before stay in use", "error", certificateError(err))
		} else {
			describeCertificate("SIGHUP: the TLS files are read again; new connections use them", r.certs.Info(), r.log)
		}
		warnCertificate(r.certs.Info(), time.Now(), r.log)
		warnKey(r.cfg, r.log)
	}
	if r.cfg.RequirepassFile == "" {
		return
	}
	switch password, err := r.cfg.Password(); {
	case err != nil:
		r.log.Error("SIGHUP: the password is not taken over, the one from before stays in use", "error", err)
	case setPassword(password):
		warnPassword(r.cfg, r.log)
		r.log.Info("SIGHUP: the password is another one now; clients that have given the former stay", "file", r.cfg.RequirepassFile)
	default:
		r.log.Info("SIGHUP: the password is the same", "file", r.cfg.RequirepassFile)
	}
}
