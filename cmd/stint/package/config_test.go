//go:build unix

package packaging

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// documented finds the rows of docs/configuration.md, which is made from the
// struct of the options: name and default of each.
var documented = regexp.MustCompile("(?m)^\\| `--([a-z-]+)[^|]*(?:\\\\\\|[^|]*)*\\| `STINT_[A-Z_]+` \\| [^|]* \\| (?:`([^`]*)`|–) \\|")

// option finds the lines of stint.yaml that set an option or show one.
var option = regexp.MustCompile(`(?m)^(#?)([a-z-]+):(?: (.*))?$`)

// TestTheExampleShowsEveryOptionWithItsDefault holds stint.yaml to the table of
// the options.
func TestTheExampleShowsEveryOptionWithItsDefault(t *testing.T) {
	defaults := map[string]string{}
	for _, m := range documented.FindAllStringSubmatch(read(t, "docs/configuration.md"), -1) {
		defaults[m[1]] = m[2]
	}
	if len(defaults) < 15 {
		t.Fatalf("%d options are documented, want at least 15: is the table read rightly?", len(defaults))
	}
	// What has no place in the file of a service.
	for _, name := range []string{
		"config",                              // the file itself
		"requirepass",                         // the file is readable for everyone
		"enable-debug-command", "debug-clock", // for tests
	} {
		if _, ok := defaults[name]; !ok {
			t.Errorf("--%s, which is left out, is not documented", name)
		}
		delete(defaults, name)
	}
	for _, m := range option.FindAllStringSubmatch(read(t, "cmd/stint/package/stint.yaml"), -1) {
		shown, name, value := m[1] == "#", m[2], m[3]
		def, ok := defaults[name]
		if !ok {
			t.Errorf("%s is no option, is left out on purpose, or stands there twice", name)
		}
		delete(defaults, name)
		if shown && def != "" && value != def {
			t.Errorf("%s is shown with %q, its default is %q", name, value, def)
		}
	}
	for name := range defaults {
		t.Errorf("stint.yaml does not show %s", name)
	}
}

// TestTheServerTakesTheExample starts with stint.yaml as it is, and with all
// that it shows.
func TestTheServerTakesTheExample(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Paths of the installation, which is not here.
	here := []string{"--addr", "127.0.0.1:0", "--dir"}
	text := read(t, "cmd/stint/package/stint.yaml")
	tls := filepath.Join(t.TempDir(), "tls.pem")
	if err := os.WriteFile(tls, certificate(t), 0o600); err != nil {
		t.Fatal(err)
	}
	uncommented := option.ReplaceAllString(text, "$2: $3")
	for name, c := range map[string]struct {
		text string
		args []string
	}{
		"as it is": {text, nil},
		"with all it has": {uncommented, []string{"--addr", "tls:127.0.0.1:0", "--requirepass-file", password, "--tls-cert", tls, "--tls-key", tls, "--tls-ca", tls, "--pprof-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0",
			"--durability", "strict", "--raft-addr", "127.0.0.1:0", "--raft-tls-cert", tls, "--raft-tls-key", tls, "--raft-tls-ca", tls}},
		"with a slip":      {text + "\nmax-cleints: 1\n", nil},
		"with a bad value": {text + "\nmax-clients: many\n", nil},
	} {
		path := filepath.Join(t.TempDir(), "stint.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"--config", path}, here...)
		log, err := starts(t, append(append(args, t.TempDir()), c.args...)...)
		if wrong := strings.Contains(name, "slip") || strings.Contains(name, "bad"); (err != nil) != wrong {
			t.Errorf("%s: %v\n%s", name, err, log)
		}
		if strings.Contains(log, "level=WARN") {
			t.Errorf("%s: the server warns\n%s", name, log)
		}
	}
	if uncommented == text || !strings.Contains(uncommented, "\nrequirepass-file: ") {
		t.Error("nothing is shown that could be uncommented")
	}
}

// certificate is one that signs itself, with its key, in PEM.
func certificate(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...)
}
