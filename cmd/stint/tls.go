package main

import (
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint/server"
)

// tlsPrefix begins an address with TLS.
const tlsPrefix = "tls:"

// certificateNotice is how long before its end a certificate is worth a
// warning: time enough to see it, and to get another.
const certificateNotice = 14 * 24 * time.Hour

// checkTLS accepts the options of TLS when they are complete, and of use.
func (c *Config) checkTLS() *optionError {
	secure := ""
	for _, a := range c.Addr {
		if secure == "" && strings.HasPrefix(a, tlsPrefix) {
			secure = a
		}
	}
	// A name is free once for each kind of address, but there is one port.
	for _, a := range c.Addr {
		bare := strings.TrimPrefix(a, tlsPrefix)
		if _, port, _ := net.SplitHostPort(bare); bare != a && port != "0" && slices.Contains(c.Addr, bare) {
			return &optionError{"addr", bare + " is given with and without TLS: one of them needs another port"}
		}
	}
	switch {
	case secure == "" && (c.TLSCert != "" || c.TLSKey != "" || c.TLSCa != ""):
		flag := "tls-cert"
		if c.TLSCert == "" {
			flag = "tls-key"
			if c.TLSKey == "" {
				flag = "tls-ca"
			}
		}
		return &optionError{flag, "no address has TLS: give one as --addr tls:host:port, like tls:0.0.0.0:6390"}
	case secure != "" && c.TLSCert == "":
		return &optionError{"tls-cert", "a certificate is needed for " + secure + ": give its file, and its key's with --tls-key"}
	case secure != "" && c.TLSKey == "":
		return &optionError{"tls-key", "the file of the key that belongs to --tls-cert is needed"}
	}
	return nil
}

// Certificates reads the files of TLS, nil if no address needs them. The error
// is an *optionError.
func (c *Config) Certificates() (*server.Certificates, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	certs, err := server.LoadCertificates(server.CertificateFiles{Cert: c.TLSCert, Key: c.TLSKey, CA: c.TLSCa})
	if err != nil {
		return nil, certificateError(err)
	}
	return certs, nil
}

// certificateError names the option that the file of a certificate came from.
func certificateError(err error) error {
	var file *server.CertificateError
	if errors.As(err, &file) {
		return &optionError{"tls-" + file.File, file.Error()}
	}
	return err
}

// describeCertificate says in the log which certificate clients see from now on.
func describeCertificate(what string, i server.CertificateInfo, log *slog.Logger) {
	clients := "need no certificate"
	if i.ClientCAs > 0 {
		clients = "must show a certificate"
	}
	log.Info(what, "names", strings.Join(i.Names, " "), "valid_from", day(i.NotBefore), "valid_until", day(i.NotAfter), "clients", clients)
}

// warnCertificate logs what clients will refuse, now or soon.
func warnCertificate(i server.CertificateInfo, now time.Time, log *slog.Logger) {
	switch left := i.NotAfter.Sub(now); {
	case now.Before(i.NotBefore):
		log.Warn("the TLS certificate is not valid yet: clients refuse it until then, or the clock of this machine is wrong", "valid_from", day(i.NotBefore))
	case left <= 0:
		log.Warn("the TLS certificate has expired: clients refuse it; put another into the file of --tls-cert and send SIGHUP", "valid_until", day(i.NotAfter))
	case left < certificateNotice:
		log.Warn("the TLS certificate expires soon: put another into the file of --tls-cert and send SIGHUP", "valid_until", day(i.NotAfter), "days_left", int(left/(24*time.Hour)))
	}
}

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }
