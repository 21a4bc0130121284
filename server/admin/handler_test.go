package admin

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// ask is the body of a GET.
func ask(h http.Handler, path string) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Body.String()
}

func TestPaths(t *testing.T) {
	for _, tc := range []struct {
		method, path string
		why          string // the node is not ready
		status       int
		body         string // is all of it, or begins it if it ends in …
	}{
		{"GET", "/healthz", "", 200, "ok\n"},
		{"GET", "/healthz", "no leader is known", 200, "ok\n"},
		{"GET", "/readyz", "", 200, "ok\n"},
		{"GET", "/readyz?verbose=1", "", 200, "ok\n"},
		{"GET", "/readyz", "no leader is known", 503, "no leader is known\n"},
		{"GET", "/readyz", "two\r\nlines", 503, "two lines\n"},
		{"GET", "/readyz", " ", 503, "no decision can be made through this node now\n"},
		{"HEAD", "/readyz", "no leader is known", 503, ""},
		{"HEAD", "/metrics", "", 200, ""},
		{"GET", "/", "", 200, index},
		{"GET", "/metrics", "no leader is known", 200, "# HELP …"},
		{"GET", "//metrics", "", 404, "there is no such path: …"},
		{"GET", "/metrics/", "", 404, "there is no such path: …"},
		{"GET", "/debug/pprof/", "", 404, "there is no such path: …"},
		{"POST", "/metrics", "", 405, "only GET and HEAD …"},
		{"DELETE", "/nothing", "", 405, "only GET and HEAD …"},
		{"OPTIONS", "/", "", 405, "only GET and HEAD …"},
	} {
		t.Run(tc.method+" "+tc.path+" "+tc.why, func(t *testing.T) {
			srv := httptest.NewServer(handle(t, &fake{why: tc.why}, discard()))
			defer srv.Close()
			req, err := http.NewRequestWithContext(t.Context(), tc.method, srv.URL+tc.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, body := do(t, srv.Client(), req)
			if resp.StatusCode != tc.status {
				t.Errorf("status %d, want %d", resp.StatusCode, tc.status)
			}
			if begin, cut := strings.CutSuffix(tc.body, "…"); cut && !strings.HasPrefix(body, begin) || !cut && body != tc.body {
				t.Errorf("body %q, want %q", body, tc.body)
			}
			if resp.Header.Get("Cache-Control") != "no-store" {
				t.Error("a cache may keep the answer")
			}
			if tc.status == 405 && resp.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("Allow is %q", resp.Header.Get("Allow"))
			}
			if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
				t.Errorf("Content-Type is %q", resp.Header.Get("Content-Type"))
			}
		})
	}
}

// panicking is a Source with a fault.
type panicking struct{ fake }

func (panicking) Ready() (bool, string) { panic("a fault") }

func TestAFaultOfTheSourceIsAnsweredAndLogged(t *testing.T) {
	var log bytes.Buffer
	h := handle(t, &panicking{}, slog.New(slog.NewTextHandler(&log, nil)))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	if w.Code != http.StatusInternalServerError || !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "a fault") {
		t.Errorf("status %d, log %q", w.Code, log.String())
	}
	log.Reset()
	if body := ask(h, "/metrics"); !strings.Contains(body, "go_goroutines") || !strings.Contains(log.String(), "a fault") {
		t.Errorf("a fault hides the other metrics, or is not logged: log %q", log.String())
	}
	if ask(h, "/healthz") != "ok\n" {
		t.Error("a fault of the source made the process dead")
	}
}

// TestHealthAnswersWhileTheSourceHangs: a probe that kills the process because
// its disk hangs makes all worse.
func TestHealthAnswersWhileTheSourceHangs(t *testing.T) {
	hang, asked := make(chan struct{}), make(chan struct{})
	h := handle(t, &fake{asked: sync.OnceFunc(func() { close(asked); <-hang })}, discard())
	ended := make(chan struct{})
	go func() { defer close(ended); ask(h, "/metrics") }()
	<-asked
	if ask(h, "/healthz") != "ok\n" || ask(h, "/readyz") != "ok\n" {
		t.Error("health waits for the figures")
	}
	close(hang)
	<-ended
}
