//go:build unix

package proc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestCPUTimeIsReadPastAHostileProgramName(t *testing.T) {
	for _, tc := range []struct {
		text string
		want time.Duration
	}{
		{"7 (redis-server) S 1 7 7 0 -1 4194560 10 0 0 0 150 25 9 9 20 0 5 0 100", 1750 * time.Millisecond},
		{"7 (a) R 1 (b) c) S 1 7 7 0 -1 4194560 10 0 0 0 1 2 900 900 20 0 5 0 100", 30 * time.Millisecond},
	} {
		got, err := parseStat([]byte(tc.text))
		if err != nil || got != tc.want {
			t.Errorf("%q: %v, %v, want %v", tc.text, got, err, tc.want)
		}
	}
	for _, text := range []string{"", "7 (x) S 1 2", "7 x S 1 7 7 0 -1 4194560 10 0 0 0 150 25", "7 (x) S 1 7 7 0 -1 4194560 10 0 0 0 a 25"} {
		if got, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q gave %v", text, got)
		}
	}
}

func TestResidentSetIsTheSecondFieldInPages(t *testing.T) {
	got, err := parseStatm([]byte("5000 123 40 1 0 60 0\n"), 4096)
	if err != nil || got != 123*4096 {
		t.Fatalf("%d, %v", got, err)
	}
	for _, text := range []string{"", "12", "12 x"} {
		if got, err := parseStatm([]byte(text), 4096); err == nil {
			t.Errorf("%q gave %d", text, got)
		}
	}
}

func TestUsageOfThisProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		if _, err := CPU(os.Getpid()); err == nil {
			t.Fatal("a CPU time without /proc")
		}
		return
	}
	before, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		now, err := CPU(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if now > before {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a busy process uses no CPU time")
		}
	}
	if rss, err := Resident(os.Getpid()); err != nil || rss < 1<<20 || rss > 1<<34 {
		t.Fatalf("resident set %d, %v", rss, err)
	}
}

func TestServerThatEndsAtOnceIsAnErrorWithItsLastWords(t *testing.T) {
	_, err := Start(context.Background(), "sulker", func(_, _, _ string) []string {
		return []string{"sh", "-c", "echo no mood today; exit 3"}
	})
	if err == nil || !strings.Contains(err.Error(), "sulker did not come up") || !strings.Contains(err.Error(), "no mood today") {
		t.Fatal(err)
	}
	_, err = Start(context.Background(), "ghost", func(_, _, _ string) []string { return []string{"/nonexistent/ghost"} })
	if err == nil || !strings.Contains(err.Error(), "ghost did not start") {
		t.Fatal(err)
	}
}

func TestSilentServerIsEndedWhenTheWaitIsCancelled(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var dir string
	_, err = Start(ctx, "mute", func(_, _, d string) []string {
		dir = d
		cancel()
		return []string{sleep, "60"}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the folder is still there: %v", err)
	}
}

func TestStopLeavesNoProcessAndNoFolder(t *testing.T) {
	s := &Server{Name: "sleeper", ended: make(chan struct{}), dir: t.TempDir()}
	if err := s.start(func(_, _, _ string) []string { return []string{"sleep", "60"} }); err != nil {
		t.Fatal(err)
	}
	pid := s.Pid()
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("it does not run: %v", err)
	}
	s.Stop()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("it still runs: %v", err)
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the folder is still there: %v", err)
	}
}

// The script in the place of a server says each time it starts how often it
// did, and answers nothing: so the second start is seen, and fails as one that
// does not answer.
func TestRestartUsesTheSameFolderAndCommand(t *testing.T) {
	s := &Server{Name: "sleeper", ended: make(chan struct{}), dir: t.TempDir()}
	marks := s.dir + "/starts"
	if err := s.start(func(_, _, dir string) []string {
		return []string{"sh", "-c", "echo up >> " + dir + "/starts; exec sleep 60"}
	}); err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	starts := func() int {
		text, _ := os.ReadFile(marks)
		return strings.Count(string(text), "up")
	}
	for deadline := time.Now().Add(10 * time.Second); starts() < 1; {
		if time.Now().After(deadline) {
			t.Fatal("it never started")
		}
	}
	first := s.Pid()
	_, _, err := s.Restart(context.Background(), time.Second)
	if err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Fatalf("restarted into silence: %v", err)
	}
	if s.Pid() == first || starts() != 2 || syscall.Kill(first, 0) == nil {
		t.Fatalf("process %d after %d, %d starts", s.Pid(), first, starts())
	}
}

func TestFilesAreCounted(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		if _, err := Files(os.Getpid()); err == nil {
			t.Fatal("open files without /proc")
		}
		return
	}
	before, err := Files(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if after, err := Files(os.Getpid()); err != nil || after != before+1 {
		t.Fatalf("%d files with one more than %d, %v", after, before, err)
	}
}
