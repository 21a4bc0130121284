package transport

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// CertificateFiles are the PEM files of TLS listeners.
type CertificateFiles struct {
	Cert string // the server's certificate, followed by those that lead to its authority's
	Key  string // the private key of the first
	CA   string // authorities of clients' certificates; "": clients need none
}

// Certificates are what TLS listeners show and ask for. Any number of
// goroutines may use one; what Reload changes holds for connections that are
// accepted later.
type Certificates struct {
	files   CertificateFiles
	current atomic.Pointer[certificates]
}

// certificates are one state of the files. A config is made anew for each, so
// that no ticket of an earlier one resumes a session: its client's certificate
// may not count any more.
type certificates struct {
	config *tls.Config
	info   CertificateInfo
}

// CertificateInfo is what people want to know about the certificate in use.
type CertificateInfo struct {
	Names     []string // that it is for: hosts and addresses, else its subject
	NotBefore time.Time
	NotAfter  time.Time
	ClientCAs int // authorities of clients' certificates; 0: clients need none
}

// CertificateError says which file cannot be used and why. Its text is a
// sentence, without a word of what is in the file.
type CertificateError struct {
	File string // "cert", "key" or "ca"
	Err  error
}

func (e *CertificateError) Error() string { return e.Err.Error() }
func (e *CertificateError) Unwrap() error { return e.Err }

// LoadCertificates reads the files. The error is a *CertificateError.
func LoadCertificates(files CertificateFiles) (*Certificates, error) {
	c := &Certificates{files: files}
	return c, c.Reload()
}

// Reload reads the files again. If anything is wrong with one, an error says
// so, and all stays as it was.
func (c *Certificates) Reload() error {
	next, err := c.files.load()
	if err != nil {
		return err
	}
	c.current.Store(next)
	return nil
}

// Info describes the certificate in use.
func (c *Certificates) Info() CertificateInfo { return c.now().info }

// Files are where it comes from.
func (c *Certificates) Files() CertificateFiles { return c.files }

func (c *Certificates) now() *certificates { return c.current.Load() }

// load makes a config of what the files hold now.
func (f CertificateFiles) load() (*certificates, error) {
	cert, err := f.pair()
	if err != nil {
		return nil, err
	}
	next := &certificates{
		config: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}},
		info:   CertificateInfo{Names: names(cert.Leaf), NotBefore: cert.Leaf.NotBefore, NotAfter: cert.Leaf.NotAfter},
	}
	if f.CA == "" {
		return next, nil
	}
	data, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, &CertificateError{"ca", fmt.Errorf("the authorities of clients' certificates cannot be read: %w", err)}
	}
	chain, err := parseCertificates(f.CA, data)
	if err != nil {
		return nil, &CertificateError{"ca", err}
	}
	next.config.ClientAuth = tls.RequireAndVerifyClientCert
	next.config.ClientCAs = x509.NewCertPool()
	for _, authority := range chain {
		next.config.ClientCAs.AddCert(authority)
	}
	next.info.ClientCAs = len(chain)
	return next, nil
}

// pair reads the server's certificate and its key.
func (f CertificateFiles) pair() (none tls.Certificate, err error) {
	certs, err := os.ReadFile(f.Cert)
	if err != nil {
		return none, &CertificateError{"cert", fmt.Errorf("the certificate cannot be read: %w", err)}
	}
	if _, err := parseCertificates(f.Cert, certs); err != nil {
		return none, &CertificateError{"cert", err}
	}
	key, err := os.ReadFile(f.Key)
	if err != nil {
		return none, &CertificateError{"key", fmt.Errorf("the key cannot be read: %w", err)}
	}
	if err := checkKey(f.Key, key); err != nil {
		return none, &CertificateError{"key", err}
	}
	pair, err := tls.X509KeyPair(certs, key)
	if err != nil {
		// Both files have been looked at: what is left is that they differ, or
		// a key of a kind that is not known.
		return none, &CertificateError{"key", fmt.Errorf("the key in %s cannot be used with the certificate in %s: %w", f.Key, f.Cert, err)}
	}
	return pair, nil
}

// parseCertificates returns all certificates of a file, at least one. Unlike
// x509.CertPool it does not pass over one that is damaged: who was to be let in
// by it would be locked out, and nobody would know why.
func parseCertificates(file string, data []byte) (all []*x509.Certificate, err error) {
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d of %s is damaged: %w", len(all)+1, file, err)
		}
		all = append(all, cert)
	}
	switch {
	case len(all) > 0 && len(all) != bytes.Count(data, []byte("-----BEGIN CERTIFICATE-----")):
		return nil, fmt.Errorf("a certificate of %s is damaged: of %d only %d can be read", file, bytes.Count(data, []byte("-----BEGIN CERTIFICATE-----")), len(all))
	case len(all) > 0:
		return all, nil
	case bytes.Contains(data, []byte("PRIVATE KEY-----")):
		return nil, fmt.Errorf("%s holds a key and no certificate: are two files mixed up?", file)
	}
	return nil, fmt.Errorf("%s holds no certificate in PEM form, which begins with -----BEGIN CERTIFICATE-----, or a damaged one", file)
}

// checkKey says what is wrong with a key in the words of who has to mend it.
// That it can be parsed and fits is checked later.
func checkKey(file string, data []byte) error {
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		switch {
		case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "":
			return fmt.Errorf("the key in %s is encrypted, and nobody is asked for the password: store it decrypted (openssl pkey), readable for the server alone", file)
		case block.Type == "PRIVATE KEY" || bytes.HasSuffix([]byte(block.Type), []byte(" PRIVATE KEY")):
			return nil
		}
	}
	if bytes.Contains(data, []byte("-----BEGIN CERTIFICATE-----")) {
		return errors.New(file + " holds a certificate and no key: are two files mixed up?")
	}
	return errors.New(file + " holds no private key in PEM form, or a damaged one")
}

// names are what a certificate is for.
func names(leaf *x509.Certificate) []string {
	all := append([]string(nil), leaf.DNSNames...)
	for _, ip := range leaf.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		all = append(all, leaf.Subject.String())
	}
	return all
}
