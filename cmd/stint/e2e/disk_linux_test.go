package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAFullDiskIsSurvived fills the file system under the state file. It needs
// one of its own, which only root may mount.
func TestAFullDiskIsSurvived(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Logf("a small file system cannot be mounted (%v): not tried", err)
		return
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := start(t, "--dir", dir, "--interval", "20ms")
	c := s.Dial()
	n := 0
	failing := func() bool { return infoField(c.Do("INFO", "persistence"), "flush_failing") != "0" }
	for !failing() {
		spend(c, strings.Repeat("k", 100)+string(rune('a'+n)), 1000, 7)
		if n++; n > 25 {
			t.Fatal("25,000 long keys fit onto a disk of 1 MiB")
		}
	}
	info := c.Do("INFO", "persistence")
	if infoField(info, "rdb_last_bgsave_status") != "err" || !strings.Contains(infoField(info, "flush_last_error"), "no space left") {
		t.Errorf("INFO does not tell:\n%s", info)
	}
	eventually(t, 10*time.Second, "the log tells", func() bool { return strings.Contains(s.Log(), "level=ERROR") })
	expectError(t, c.Do("SAVE"), "ERR ")
	spend(c, "still", 100, 7) // decisions go on

	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the state is written again", func() bool { return !failing() })
	expect(t, c.Do("SAVE"), "OK")
	eventually(t, 10*time.Second, "the log tells that it is over", func() bool { return strings.Contains(s.Log(), "written again") })
	s.Kill()
	s = start(t, "--dir", dir)
	c = s.Dial()
	for i := range n {
		left(c, strings.Repeat("k", 100)+string(rune('a'+i)), 1000, 993)
	}
	left(c, "still", 100, 993)
	s.Stop()
}

// TestASecondInterruptEndsAFlushThatFails stops a server whose disk is full,
// and then wants it to end rather than try on.
func TestASecondInterruptEndsAFlushThatFails(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Logf("a small file system cannot be mounted (%v): not tried", err)
		return
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := start(t, "--dir", dir, "--interval", "1h")
	c := s.Dial()
	for n := range 25 {
		spend(c, strings.Repeat("k", 100)+string(rune('a'+n)), 1000, 7)
	}
	begun := time.Now()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-time.After(1100 * time.Millisecond)
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := s.Exit(10 * time.Second); code != 1 || !strings.Contains(s.Log(), "because of a second interrupt while the state could not be written") {
		t.Errorf("exit code %d:\n%s", code, s.Log())
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}
