package main

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/server"
)

func TestOptionsOfTLSBelongTogether(t *testing.T) {
	for _, x := range []struct{ args, want string }{
		{"--addr tls:127.0.0.1:1 --tls-cert c --tls-key k", ""},
		{"--addr tls:[::1]:1 --addr 127.0.0.1:1 --tls-cert c --tls-key k --tls-ca a", ""},
		{"--addr tls::0 --addr :0 --tls-cert c --tls-key k", ""},
		{"--addr tls:127.0.0.1:1", "--tls-cert: a certificate is needed for tls:127.0.0.1:1"},
		{"--addr tls:127.0.0.1:1 --tls-key k", "--tls-cert: a certificate is needed"},
		{"--addr tls:127.0.0.1:1 --tls-ca a", "--tls-cert: a certificate is needed"},
		{"--addr tls:127.0.0.1:1 --tls-cert c", "--tls-key: the file of the key"},
		{"--tls-cert c", "--tls-cert: no address has TLS"},
		{"--tls-key k", "--tls-key: no address has TLS"},
		{"--tls-ca a", "--tls-ca: no address has TLS"},
		{"--addr unix:/x --tls-cert c --tls-key k", "--tls-cert: no address has TLS"},
		{"--addr tls:127.0.0.1:1 --addr 127.0.0.1:1 --tls-cert c --tls-key k", "--addr: 127.0.0.1:1 is given with and without TLS"},
		{"--addr tls:127.0.0.1:1 --addr tls:127.0.0.1:1 --tls-cert c --tls-key k", `--addr: "tls:127.0.0.1:1" is given twice`},
		{"--addr tls:", `--addr: "tls:" is not an address: want tls:host:port`},
		{"--addr tls:6390", `--addr: "tls:6390" is not an address: want tls:host:port`},
		{"--addr tls:127.0.0.1:x", `--addr: "127.0.0.1:x" has no port`},
		{"--addr tls:unix:/x", "--addr: "},
		{"--pprof-addr 127.0.0.1:6060", ""},
		{"--pprof-addr localhost:0", ""},
		{"--pprof-addr [::1]:0", ""},
		{"--pprof-addr 6060", `--pprof-addr: "6060" is not an address`},
		{"--pprof-addr :6060", "--pprof-addr: "},
		{"--pprof-addr 0.0.0.0:6060", "can be reached by other machines"},
		{"--pprof-addr unix:/x", "--pprof-addr: "},
	} {
		_, err := parse(t, nil, strings.Fields(x.args)...)
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.args, err, x.want)
		}
	}
}

// TestFilesOfTLSAreNamedByTheirOption reads them as the start does.
func TestFilesOfTLSAreNamedByTheirOption(t *testing.T) {
	c := &Config{TLSCert: "/none", TLSKey: "/none"}
	if _, err := c.secrets(); err == nil || !strings.HasPrefix(err.Error(), "--tls-cert: the certificate cannot be read: ") {
		t.Errorf("got %v", err)
	}
	c = &Config{}
	if with, err := c.secrets(); err != nil || with.certs != nil || with.password != "" {
		t.Errorf("got %v, %v without any file", with, err)
	}
}

func TestCertificatesNearTheirEndAreWarnedOf(t *testing.T) {
	now := time.Date(2030, 1, 20, 0, 0, 0, 0, time.UTC)
	for _, x := range []struct {
		from, until time.Duration
		want        string
	}{
		{-time.Hour, certificateNotice, ""},
		{-time.Hour, certificateNotice - 1, "expires soon"},
		{-time.Hour, 1, "days_left=0"},
		{-time.Hour, 0, "has expired"},
		{-time.Hour, -time.Hour, "valid_until=2030-01-19T23:00:00Z"},
		{time.Hour, 2 * certificateNotice, "is not valid yet"},
		{0, 2 * certificateNotice, ""},
	} {
		var b bytes.Buffer
		warnCertificate(server.CertificateInfo{NotBefore: now.Add(x.from), NotAfter: now.Add(x.until)}, now, slog.New(slog.NewTextHandler(&b, nil)))
		if (b.Len() == 0) != (x.want == "") || !strings.Contains(b.String(), x.want) {
			t.Errorf("from %v until %v: %q, want %q", x.from, x.until, b.String(), x.want)
		}
	}
}

func TestAKeyThatOthersReadIsWarnedOf(t *testing.T) {
	path := file(t, "key.pem", "x")
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		warnKey(&Config{TLSKey: path}, slog.New(slog.NewTextHandler(&b, nil)))
		if (b.Len() > 0) != want {
			t.Errorf("%o: %q", mode, b.String())
		}
	}
}
