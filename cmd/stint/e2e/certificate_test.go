//go:build unix

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs certificates and keeps the files of a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	File string // its own certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.sign(time.Now().Add(24*time.Hour), "authority")
	a.File = a.write("authority.pem", "CERTIFICATE", a.cert.Raw)
	return a
}

// sign makes a certificate, the authority's own if it has none yet.
func (a *authority) sign(until time.Time, names ...string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: until,
		BasicConstraintsValid: true,
	}
	parent, by := a.cert, a.key
	if parent == nil {
		cert.IsCA = true
		parent, by = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return made, key
}

// write makes a PEM file, readable for its owner alone.
func (a *authority) write(name, kind string, der []byte) (path string) {
	a.t.Helper()
	path = filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// Issue writes a certificate for names that ends then, and its key, and returns
// the paths. Under the same name they replace the former.
func (a *authority) Issue(file string, until time.Time, names ...string) (cert, key string) {
	a.t.Helper()
	c, k := a.sign(until, names...)
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(file+".pem", "CERTIFICATE", c.Raw), a.write(file+"-key.pem", "PRIVATE KEY", der)
}

// Client is the configuration of a client that trusts the authority, and shows
// a certificate of another one if that is given.
func (a *authority) Client(by *authority) *tls.Config {
	a.t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "stint.test"}
	config.RootCAs.AddCert(a.cert)
	if by != nil {
		pair, err := tls.LoadX509KeyPair(by.Issue("client", time.Now().Add(time.Hour), "client"))
		if err != nil {
			a.t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// serverFlags issues a certificate and returns the flags for it.
func (a *authority) serverFlags() []string {
	a.t.Helper()
	cert, key := a.Issue("server", time.Now().Add(90*24*time.Hour), "stint.test")
	return []string{"--tls-cert", cert, "--tls-key", key}
}
