//go:build unix

package main

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSecretsThatAllCanReadAreWarnedOf lets a group read: systemd's credentials
// and files of root that a service may read are so.
func TestSecretsThatAllCanReadAreWarnedOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[fs.FileMode]bool{0o400: false, 0o440: false, 0o600: false, 0o640: false, 0o660: false, 0o644: true, 0o404: true, 0o666: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct {
			warn func(*Config, *slog.Logger)
			cfg  Config
			text string
		}{
			{warnPassword, Config{RequirepassFile: path}, "the password file"},
			{warnKey, Config{TLSKey: path}, "the TLS key"},
		} {
			var out bytes.Buffer
			x.warn(&x.cfg, slog.New(slog.NewTextHandler(&out, nil)))
			if warned := strings.Contains(out.String(), "other users of this machine can read "+x.text); warned != want || (out.Len() > 0) != want {
				t.Errorf("mode %v of %s: %q", mode, x.text, out.String())
			}
		}
	}
	var out bytes.Buffer
	for _, cfg := range []Config{{}, {RequirepassFile: "/none", TLSKey: "/none"}} {
		warnPassword(&cfg, slog.New(slog.NewTextHandler(&out, nil)))
		warnKey(&cfg, slog.New(slog.NewTextHandler(&out, nil)))
	}
	if out.Len() > 0 {
		t.Errorf("without a file: %q", out.String())
	}
}
