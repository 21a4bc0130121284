package transport

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnixSocketServesAndLeavesNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(t.Context(), "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's mode is %v, %v; want 0700", info.Mode(), err)
	}
	unix := make(chan bool, 8)
	s := newServer(t, Options{NewSession: func(info ConnInfo) Session {
		unix <- info.Unix
		return &toy{open: true}
	}})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	dial(t, "unix:"+path).ping()
	if !<-unix {
		t.Error("the session is not told that it is on a unix socket")
	}
	if _, err := Listen(t.Context(), "unix:"+path); err == nil || !strings.Contains(err.Error(), "another process listens there") {
		t.Errorf("a second listener on the path: %v", err)
	}
	dial(t, "unix:"+path).ping()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket's file after the stop: %v, want none", err)
	}
}

func TestStaleUnixSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	l, err := Listen(t.Context(), "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

func TestFileThatIsNoSocketIsNotTouched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), "unix:"+path); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("listening on a file: %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Errorf("the file holds %q, %v", b, err)
	}
}

func TestListenSaysWhatIsWrong(t *testing.T) {
	taken, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for addr, want := range map[string]string{
		"unix:":                  "the path is missing",
		"unix:/no/such/folder/s": "no such file",
		"127.0.0.1":              "missing port",
		taken.Addr().String():    "address already in use",
	} {
		if l, err := Listen(t.Context(), addr); err == nil {
			_ = l.Close()
			t.Errorf("%s: no error", addr)
		} else if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), addr) {
			t.Errorf("%s: %v, want the address and %q", addr, err, want)
		}
	}
}
