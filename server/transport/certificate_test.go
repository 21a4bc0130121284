package transport

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates for a test.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.sign("authority", nil)
	return a
}

// sign makes a certificate for 127.0.0.1 and stint.test, valid for a day from
// an hour ago; the authority's own if it has none yet.
func (a *authority) sign(name string, change func(*x509.Certificate)) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"stint.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		BasicConstraintsValid: true,
	}
	parent, by := a.cert, a.key
	if parent == nil {
		cert.IsCA, cert.DNSNames, cert.IPAddresses = true, nil, nil
		parent, by = cert, key
	}
	if change != nil {
		change(cert)
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

// pool trusts the authority.
func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// client is the configuration of a client that trusts the authority, and shows
// a certificate signed by another one if that is given.
func (a *authority) client(by *authority) *tls.Config {
	config := &tls.Config{RootCAs: a.pool(), ServerName: "stint.test"}
	if by != nil {
		cert, key := by.sign("client", nil)
		config.Certificates = []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}
	}
	return config
}

func certPEM(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

func keyPEM(t testing.TB, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// write puts data into a file of the files' folder.
func write(t testing.TB, path string, data ...[]byte) {
	t.Helper()
	if err := os.WriteFile(path, bytes.Join(data, nil), 0o600); err != nil {
		t.Fatal(err)
	}
}

// newFiles makes the files of a server whose clients must show a certificate of
// the authority clients, if there is one.
func (a *authority) newFiles(clients *authority) CertificateFiles {
	a.t.Helper()
	dir := a.t.TempDir()
	f := CertificateFiles{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	a.renew(f, "stint.test")
	if clients != nil {
		f.CA = filepath.Join(dir, "ca.pem")
		write(a.t, f.CA, certPEM(clients.cert))
	}
	return f
}

// renew writes another certificate and key.
func (a *authority) renew(f CertificateFiles, names ...string) {
	a.t.Helper()
	cert, key := a.sign("server", func(c *x509.Certificate) { c.DNSNames = names })
	write(a.t, f.Cert, certPEM(cert))
	write(a.t, f.Key, keyPEM(a.t, key))
}

func (a *authority) load(clients *authority) *Certificates {
	a.t.Helper()
	certs, err := LoadCertificates(a.newFiles(clients))
	if err != nil {
		a.t.Fatal(err)
	}
	return certs
}

func TestWhatIsWrongWithAFileIsSaid(t *testing.T) {
	a := newAuthority(t)
	good := a.newFiles(a)
	cert, key := a.sign("server", nil)
	certs, keys := certPEM(cert), keyPEM(t, key)
	damaged := bytes.Replace(certs, []byte("\nM"), []byte("\n*"), 1)
	halved := append([]byte(nil), certs...)
	halved[len(halved)/2] ^= 1
	for _, x := range []struct {
		name    string
		file    string // which of the three is written
		data    []byte // nil: it is removed
		as      string // the file that is blamed
		want    string
		without bool // the path of the file
	}{
		{"no certificate file", "cert", nil, "cert", "the certificate cannot be read: ", false},
		{"no key file", "key", nil, "key", "the key cannot be read: ", false},
		{"no authorities file", "ca", nil, "ca", "the authorities of clients' certificates cannot be read: ", false},
		{"an empty certificate file", "cert", []byte{}, "cert", "holds no certificate in PEM form", false},
		{"an empty key file", "key", []byte{}, "key", "holds no private key in PEM form", false},
		{"an empty authorities file", "ca", []byte{}, "ca", "holds no certificate in PEM form", false},
		{"a key as the certificate", "cert", keys, "cert", "holds a key and no certificate: are two files mixed up?", false},
		{"a certificate as the key", "key", certs, "key", "holds a certificate and no key: are two files mixed up?", false},
		{"a certificate whose base64 is damaged", "cert", damaged, "cert", "or a damaged one", false},
		{"a chain with a damaged end", "cert", append(append([]byte(nil), certs...), damaged...), "cert", "of 2 only 1 can be read", false},
		{"an authority that is damaged", "ca", append(append([]byte(nil), certs...), damaged...), "ca", "of 2 only 1 can be read", false},
		{"a certificate that is no certificate", "cert", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), "cert", "certificate 1 of ", false},
		{"a key that is no key", "key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}), "key", "cannot be used with the certificate", false},
		{"another certificate's key", "key", keys, "key", "private key does not match public key", false},
		{"an encrypted key", "key", pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")}), "key", "is encrypted, and nobody is asked for the password", false},
		{"an encrypted key of old", "key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-128-CBC,00"}, Bytes: []byte("x")}), "key", "is encrypted", false},
	} {
		files := a.newFiles(a)
		paths := map[string]string{"cert": files.Cert, "key": files.Key, "ca": files.CA}
		running, err := LoadCertificates(files)
		if err != nil {
			t.Fatal(err)
		}
		before := running.now()
		if x.data == nil {
			if err := os.Remove(paths[x.file]); err != nil {
				t.Fatal(err)
			}
		} else {
			write(t, paths[x.file], x.data)
		}
		_, err = LoadCertificates(files)
		var file *CertificateError
		if !errors.As(err, &file) || file.File != x.as || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), paths[x.file]) {
			t.Errorf("%s: %v, want the file %s and %q", x.name, err, paths[x.file], x.want)
		}
		if err := running.Reload(); err == nil {
			t.Errorf("%s: it is taken over by a reload", x.name)
		}
		if running.now() != before {
			t.Errorf("%s: the state from before is gone", x.name)
		}
	}
	if _, err := LoadCertificates(good); err != nil {
		t.Errorf("good files: %v", err)
	}
}

func TestCertificatesAreDescribed(t *testing.T) {
	a := newAuthority(t)
	files := a.newFiles(a)
	certs, err := LoadCertificates(files)
	if err != nil {
		t.Fatal(err)
	}
	info := certs.Info()
	if strings.Join(info.Names, " ") != "stint.test 127.0.0.1" || info.ClientCAs != 1 || time.Until(info.NotAfter) < 23*time.Hour || time.Until(info.NotBefore) > 0 {
		t.Errorf("described as %+v", info)
	}
	cert, key := a.sign("a name", func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = nil, nil })
	write(t, files.Cert, certPEM(cert), certPEM(a.cert))
	write(t, files.Key, []byte("what stands before counts for nothing\n"), keyPEM(t, key))
	if err := certs.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := certs.Info().Names; len(got) != 1 || got[0] != "CN=a name" {
		t.Errorf("a certificate without names is described as %q", got)
	}
}
