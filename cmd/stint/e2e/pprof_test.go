//go:build unix

package e2e

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

var serving = regexp.MustCompile(`msg="serving profiles" url=(\S+)`)

// get asks for a path under host, "" for the address itself.
func get(t *testing.T, url, host string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		req.Host = host
	}
	client := &http.Client{Timeout: ioTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestProfilesAreServedToThisMachine(t *testing.T) {
	s := start(t, "--pprof-addr", "127.0.0.1:0")
	m := serving.FindStringSubmatch(s.Log())
	if m == nil {
		t.Fatalf("the log names no address:\n%s", s.Log())
	}
	base := m[1]
	if code, body := get(t, base, ""); code != 200 || !strings.Contains(body, "goroutine") {
		t.Errorf("the index: %d, %.200s", code, body)
	}
	if code, body := get(t, base+"goroutine?debug=1", ""); code != 200 || !strings.Contains(body, "transport.(*Server)") {
		t.Errorf("goroutines: %d, %.200s", code, body)
	}
	if code, body := get(t, base+"heap", ""); code != 200 || !strings.HasPrefix(body, "\x1f\x8b") {
		t.Errorf("the heap: %d, %.20q", code, body)
	}
	if code, body := get(t, base+"profile?seconds=1", ""); code != 200 || !strings.HasPrefix(body, "\x1f\x8b") {
		t.Errorf("a profile: %d, %.20q", code, body)
	}
	// What a web page can send from a browser here: its own name, led to this address.
	if code, _ := get(t, base, "evil.example"); code != http.StatusForbidden {
		t.Errorf("under a foreign name: %d, want 403", code)
	}
	if code, _ := get(t, base, "localhost:6060"); code != 200 {
		t.Errorf("under the name localhost: %d", code)
	}
	if code, _ := get(t, strings.TrimSuffix(base, "debug/pprof/"), ""); code != http.StatusNotFound {
		t.Errorf("another path: %d, want 404", code)
	}

	// A profile that is being made does not hold up a stop.
	begun := make(chan struct{})
	go func() {
		req, _ := http.NewRequest(http.MethodGet, base+"profile?seconds=30", nil)
		close(begun)
		if r, err := http.DefaultClient.Do(req); err == nil {
			r.Body.Close()
		}
	}()
	<-begun
	began := time.Now()
	s.Stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
}

func TestProfilesAreOffAndNeverForOthers(t *testing.T) {
	if s := start(t); strings.Contains(s.Log(), "profiles") {
		t.Errorf("profiles are served by default:\n%s", s.Log())
	}
	for _, addr := range []string{"0.0.0.0:6060", ":6060", "[::]:6060", "10.0.0.1:6060", "example.org:6060"} {
		if code, _, stderr := tool(t, "--pprof-addr", addr); code != 2 || !strings.HasPrefix(stderr, "stint: --pprof-addr: ") || !strings.Contains(stderr, "can be reached by other machines") {
			t.Errorf("%s: exit code %d, %s", addr, code, stderr)
		}
	}
	s := start(t)
	if code, _, stderr := tool(t, "--durability", "none", "--addr", "127.0.0.1:0", "--pprof-addr", s.Addr); code != 1 || !strings.Contains(stderr, "choose another address with --pprof-addr") {
		t.Errorf("an address in use: exit code %d, %s", code, stderr)
	}
}
