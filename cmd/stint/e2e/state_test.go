//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// spend consumes cost units of capacity 1000 at 1/h from keys name:0 to
// name:n-1, in one pipeline.
func spend(c *Conn, name string, n, cost int) {
	c.t.Helper()
	var b strings.Builder
	for i := range n {
		b.WriteString(command("THROTTLE", name+":"+strconv.Itoa(i), "1000", "1/h", strconv.Itoa(cost)))
	}
	c.Raw(b.String())
	for i := range n {
		if r, ok := c.Reply().([]any); !ok || r[0] != int64(1) {
			c.t.Fatalf("key %d: %v", i, r)
		}
	}
}

// left expects that every key of spend has so many units left.
func left(c *Conn, name string, n int, units int64) {
	c.t.Helper()
	var b strings.Builder
	for i := range n {
		b.WriteString(command("THROTTLE", name+":"+strconv.Itoa(i), "1000", "1/h", "0"))
	}
	c.Raw(b.String())
	for i := range n {
		if r, ok := c.Reply().([]any); !ok || r[2] != units {
			c.t.Fatalf("%s:%d: %v, want %d units left", name, i, r, units)
		}
	}
}

func TestACleanStopLosesNothing(t *testing.T) {
	dir := t.TempDir()
	s := start(t, "--dir", dir, "--interval", "1h")
	c := s.Dial()
	spend(c, "a", 5000, 7)
	c.Do("SELECT", "9")
	spend(c, "b", 10, 3)
	c.Do("WINDOW", "w", "10", "1w", "4", "LOG")
	s.Stop()
	s = start(t, "--dir", dir, "--interval", "1h")
	c = s.Dial()
	expect(t, c.Do("DBSIZE"), int64(5000))
	left(c, "a", 5000, 993)
	c.Do("SELECT", "9")
	expect(t, c.Do("DBSIZE"), int64(11))
	left(c, "b", 10, 997)
	expect(t, c.Do("WINDOW", "w", "10", "1w", "7", "LOG", "PEEK").([]any)[0], int64(0))
	expect(t, c.Do("TYPE", "w"), "log")

	// What is deleted stays deleted.
	expect(t, c.Do("DEL", "w", "b:0"), int64(2))
	c.Do("SELECT", "0")
	expect(t, c.Do("FLUSHDB"), "OK")
	s.Stop()
	c = start(t, "--dir", dir).Dial()
	expect(t, c.Do("DBSIZE"), int64(0))
	c.Do("SELECT", "9")
	expect(t, c.Do("DBSIZE"), int64(9))
	expect(t, c.Do("EXISTS", "w", "b:0"), int64(0))
}

func TestAKillAfterSaveLosesNothing(t *testing.T) {
	dir := t.TempDir()
	s := start(t, "--dir", dir, "--interval", "1h")
	c := s.Dial()
	spend(c, "a", 2000, 7)
	before := time.Now().Unix()
	expect(t, c.Do("SAVE"), "OK")
	if at := c.Do("LASTSAVE").(int64); at < before || at > time.Now().Unix() {
		t.Errorf("LASTSAVE is %d, the save was at %d or later", at, before)
	}
	spend(c, "late", 10, 1)
	s.Kill()
	c = start(t, "--dir", dir).Dial()
	left(c, "a", 2000, 993)
	// Not saved and not flushed within the hour: truly lost, so that this
	// test would notice if SAVE did nothing but wait for the next interval.
	expect(t, c.Do("DBSIZE"), int64(2000))
}

func TestBackgroundSaveSaves(t *testing.T) {
	dir := t.TempDir()
	s := start(t, "--dir", dir, "--interval", "1h")
	c := s.Dial()
	spend(c, "a", 100, 7)
	expect(t, c.Do("BGSAVE"), "Background saving started")
	eventually(t, 10*time.Second, "the changes are saved", func() bool {
		info := c.Do("INFO", "persistence")
		return infoField(info, "rdb_changes_since_last_save") == "0" && infoField(info, "rdb_bgsave_in_progress") == "0"
	})
	s.Kill()
	left(start(t, "--dir", dir).Dial(), "a", 100, 993)
}

// killed writes key after key, kills the server at a moment of no design, and
// expects that what was answered two completed flushes earlier is there: the
// loss is at most the interval and one flush.
func killed(t *testing.T, dir string, round int) {
	s := start(t, "--dir", dir, "--interval", "20ms")
	c, watch := s.Dial(), s.Dial()
	name := "round" + strconv.Itoa(round)
	flushes := func() int {
		n, err := strconv.Atoi(infoField(watch.Do("INFO", "persistence"), "flush_count"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	written := 0
	write := func() {
		expect(t, c.Do("THROTTLE", name+":"+strconv.Itoa(written), "1000", "1/h", "7").([]any)[0], int64(1))
		written++
	}
	for range 100 * (round + 1) {
		write()
	}
	// A flush may be under way when the count is read, with a cut from before;
	// the second one after it began later.
	safe, since := written, flushes()
	for flushes() < since+2 {
		write()
	}
	s.Kill()
	again := start(t, "--dir", dir)
	c = again.Dial()
	left(c, name, safe, 993)
	// Nothing may appear that was never decided.
	if n := c.Do("EXISTS", name+":"+strconv.Itoa(written)); n != int64(0) {
		t.Error("a key exists that was never written")
	}
	for r := range round {
		left(c, "round"+strconv.Itoa(r), 100, 993)
	}
	again.Kill()
}

func TestAKillLosesAtMostTheIntervalAndOneFlush(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		killed(t, dir, round)
	}
}

func TestDurabilityNoneKeepsNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := start(t, "--dir", dir, "--durability", "none")
	c := s.Dial()
	spend(c, "a", 10, 7)
	expectError(t, c.Do("SAVE"), "ERR nothing is saved")
	s.Stop()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder was made: %v", err)
	}
	expect(t, start(t, "--dir", dir, "--durability", "none").Dial().Do("DBSIZE"), int64(0))
}

// TestAClockSetBackWhileDownGivesNobodyUnits restarts with an earlier clock:
// time goes on from the latest decision, so no window begins again and no
// bucket fills.
func TestAClockSetBackWhileDownGivesNobodyUnits(t *testing.T) {
	const now = 1_764_500_000_000_000_000
	hour := int64(time.Hour)
	dir := t.TempDir()
	at := func(ns int64) *Server {
		return start(t, "--dir", dir, "--debug-clock", strconv.FormatInt(ns, 10))
	}
	s := at(now)
	c := s.Dial()
	expect(t, c.Do("THROTTLE", "b", "10", "1/m", "10"), ints(1, 10, 0, 0, 600_000))
	expect(t, c.Do("WINDOW", "w", "10", "1h", "10", "FIXED").([]any)[0], int64(1))
	window := c.Do("WINDOW", "w", "10", "1h", "1", "FIXED")
	s.Stop()
	for _, back := range []int64{hour, 1000 * hour, now} {
		s = at(now - back)
		c = s.Dial()
		expect(t, c.Do("THROTTLE", "b", "10", "1/m"), ints(0, 10, 0, 60_000, 600_000))
		expect(t, c.Do("WINDOW", "w", "10", "1h", "1", "FIXED"), window)
		s.Stop()
	}
	c = at(now + int64(time.Minute)).Dial()
	expect(t, c.Do("THROTTLE", "b", "10", "1/m"), ints(1, 10, 0, 0, 600_000))
}

// TestAFullBucketIsForgottenAcrossARestart sees that what is as new at the
// time of the restart does not count.
func TestAFullBucketIsForgottenAcrossARestart(t *testing.T) {
	const now = 1_764_500_000_000_000_000
	dir := t.TempDir()
	s := start(t, "--dir", dir, "--debug-clock", strconv.Itoa(now))
	c := s.Dial()
	expect(t, c.Do("THROTTLE", "b", "10", "1/m", "10").([]any)[0], int64(1))
	s.Stop()
	c = start(t, "--dir", dir, "--debug-clock", strconv.Itoa(now+600_000_000_000)).Dial()
	expect(t, c.Do("EXISTS", "b"), int64(0))
	expect(t, c.Do("TYPE", "b"), "none")
}

// refuses expects that a server with this folder ends by itself, soon, with
// one sentence on stderr and without ever having listened.
func refuses(t *testing.T, dir string, want ...string) {
	t.Helper()
	s := launch(t, "--dir", dir)
	code := s.Exit(5 * time.Second)
	log := s.Log()
	last := strings.TrimSpace(log[strings.LastIndex(strings.TrimRight(log, "\n"), "\n")+1:])
	if code != 1 || strings.Contains(log, "msg=listening") || strings.Contains(log, "panic") || strings.Contains(log, "goroutine ") {
		t.Errorf("exit code %d, want 1 and no listener:\n%s", code, log)
	}
	for _, w := range want {
		if !strings.Contains(last, w) {
			t.Errorf("the last line is %q, want one that says %q", last, w)
		}
	}
}

func TestALockedFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := start(t, "--dir", dir)
	c := s.Dial()
	spend(c, "a", 10, 7)
	refuses(t, dir, dir)
	expect(t, c.Do("PING"), "PONG")
	if code, _, stderr := tool(t, "backup", "--dir", dir, filepath.Join(t.TempDir(), "b.db")); code != 1 || !strings.Contains(stderr, dir) ||
		!strings.Contains(stderr, "stop it first") || strings.Contains(stderr, "another folder") {
		t.Errorf("a backup of a running server: exit code %d, %s", code, stderr)
	}
	if code, _, stderr := tool(t, "inspect", dir); code != 1 || !strings.Contains(stderr, dir) || !strings.Contains(stderr, "stop it first") {
		t.Errorf("inspecting a running server: exit code %d, %s", code, stderr)
	}
	s.Stop()
	left(start(t, "--dir", dir).Dial(), "a", 10, 993)
}

func TestAKilledServerLeavesNoLock(t *testing.T) {
	dir := t.TempDir()
	s := start(t, "--dir", dir)
	s.Kill()
	expect(t, start(t, "--dir", dir).Dial().Do("PING"), "PONG")
}

func TestADamagedOrForeignFileIsRefusedAndNotTouched(t *testing.T) {
	dir := t.TempDir()
	s := start(t, "--dir", dir)
	spend(s.Dial(), "a", 20_000, 7)
	s.Stop()
	good, err := os.ReadFile(filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	for name, bad := range map[string][]byte{
		"text":        []byte("this is no state file, but someone's notes\n"),
		"another one": append([]byte("SQLite format 3\x00"), make([]byte, 8192)...),
		"empty head":  change(func(b []byte) []byte { clear(b[:8192]); return b }),
		"cut off":     change(func(b []byte) []byte { return b[:len(b)/2] }),
		"a byte in the middle of the chunks": change(func(b []byte) []byte {
			i := bytes.Index(b, []byte("a:1234"))
			if i < 0 {
				t.Fatal("the keys are not in the file as they are")
			}
			b[i+5] ^= 1
			return b
		}),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "state.db")
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			refuses(t, dir, path)
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, bad) {
				t.Errorf("the file was changed (%v)", err)
			}
			if code, _, stderr := tool(t, "inspect", path); code != 1 || !strings.Contains(stderr, path) {
				t.Errorf("inspect: exit code %d, %s", code, stderr)
			}
		})
	}
}

func TestAFolderThatCannotBeIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refuses(t, path, path)
}

func TestBackupAndInspect(t *testing.T) {
	dir := t.TempDir()
	s := start(t, "--dir", dir)
	spend(s.Dial(), "a", 300, 7)
	s.Stop()
	saved := filepath.Join(t.TempDir(), "backup.db")
	if code, stdout, stderr := tool(t, "backup", "--dir", dir, saved); code != 0 || stdout == "" {
		t.Fatalf("exit code %d, %q, %s", code, stdout, stderr)
	}
	if code, _, stderr := tool(t, "backup", "--dir", dir, saved); code != 1 || !strings.Contains(stderr, saved) {
		t.Errorf("a backup over a file: exit code %d, %s", code, stderr)
	}
	if code, _, stderr := tool(t, "backup", "--dir", filepath.Join(dir, "none"), saved+"2"); code != 1 || !strings.Contains(stderr, "none") {
		t.Errorf("a backup of nothing: exit code %d, %s", code, stderr)
	}
	code, stdout, stderr := tool(t, "inspect", saved)
	if code != 0 || !strings.Contains(stdout, "300") || !strings.Contains(stdout, "bucket") || strings.Contains(stdout, "a:17") {
		t.Errorf("exit code %d, %s\n%s", code, stdout, stderr)
	}
	if code, stdout, stderr = tool(t, "inspect", "--keys", saved); code != 0 || !strings.Contains(stdout, `db0 "a:17" bucket limit=1000 rate=1/h used=7 `) {
		t.Errorf("exit code %d, %s\n%s", code, stdout, stderr)
	}
	// A backup is a state file: it is restored by putting it in place.
	restored := t.TempDir()
	data, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(restored, "state.db"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	left(start(t, "--dir", restored).Dial(), "a", 300, 993)
}

func TestTheBannerSaysWhatMatters(t *testing.T) {
	dir := t.TempDir()
	s := start(t, "--dir", dir)
	spend(s.Dial(), "a", 42, 7)
	s.Stop()
	s = start(t, "--dir", dir, "--interval", "700ms")
	for _, want := range []string{"addr=" + s.Addr, "durability=interval", "interval=700ms", "dir=" + dir, "keys=42", "protected_mode=yes", "version="} {
		if !strings.Contains(s.Log(), want) {
			t.Errorf("the log does not say %s:\n%s", want, s.Log())
		}
	}
}

func TestJSONLog(t *testing.T) {
	s := launch(t, "--log-format", "json")
	eventually(t, startTimeout, "it listens", func() bool { return strings.Contains(s.Log(), `"msg":"listening"`) })
	s.Stop()
	for line := range strings.Lines(s.Log()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry["msg"] == nil || entry["level"] == nil {
			t.Errorf("%q is no entry: %v", line, err)
		}
	}
}

func TestAnAddressInUseIsRefused(t *testing.T) {
	s := start(t)
	second := launch(t, "--addr", s.Addr)
	if code := second.Exit(5 * time.Second); code != 1 || !strings.Contains(second.Log(), s.Addr) {
		t.Errorf("exit code %d:\n%s", code, second.Log())
	}
	// It gave its folder back: nothing keeps a third from using it.
	expect(t, s.Dial().Do("PING"), "PONG")
}

// TestAStopUnderLoadKeepsEveryAnswer stops the server while clients decide:
// each answer that arrived is there after the restart.
func TestAStopUnderLoadKeepsEveryAnswer(t *testing.T) {
	dir := t.TempDir()
	s := start(t, "--dir", dir, "--interval", "1h")
	const clients = 8
	answered := make(chan [2]int, clients)
	running := make(chan struct{}, clients)
	for i := range clients {
		c := s.Dial()
		go func() {
			n := 0
			for {
				_ = c.SetDeadline(time.Now().Add(ioTimeout))
				if _, err := c.Write([]byte(command("THROTTLE", fmt.Sprintf("c%d:%d", i, n), "1000", "1/h", "7"))); err != nil {
					break
				}
				r, err := readReply(c.r)
				if err != nil {
					break
				}
				if all, ok := r.([]any); !ok || all[0] != int64(1) {
					break
				}
				if n++; n == 100 {
					running <- struct{}{}
				}
			}
			answered <- [2]int{i, n}
		}()
	}
	for range clients {
		select {
		case <-running:
		case <-time.After(ioTimeout):
			t.Fatal("the clients do not get answers")
		}
	}
	s.Stop()
	c := start(t, "--dir", dir).Dial()
	for range clients {
		a := <-answered
		if a[1] < 100 {
			t.Errorf("client %d got %d answers only", a[0], a[1])
		}
		left(c, fmt.Sprintf("c%d", a[0]), a[1], 993)
	}
}

// TestAStateRemovedWhileInUseIsWrittenAnew takes the state away from a running
// server. SAVE and a clean stop mean what they say all the same: what a restart
// finds is everything.
func TestAStateRemovedWhileInUseIsWrittenAnew(t *testing.T) {
	for name, remove := range map[string]func(dir string) error{
		"file":         func(dir string) error { return os.Remove(filepath.Join(dir, "state.db")) },
		"file moved":   func(dir string) error { return os.Rename(filepath.Join(dir, "state.db"), filepath.Join(dir, "old")) },
		"folder":       os.RemoveAll,
		"folder moved": func(dir string) error { return os.Rename(dir, dir+"-old") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			s := start(t, "--dir", dir, "--interval", "1h")
			c := s.Dial()
			spend(c, "a", 3000, 7)
			expect(t, c.Do("SAVE"), "OK")
			if err := remove(dir); err != nil {
				t.Fatal(err)
			}
			spend(c, "b", 100, 3)
			expect(t, c.Do("SAVE"), "OK")
			if !strings.Contains(s.Log(), "level=ERROR") || !strings.Contains(s.Log(), filepath.Join(dir, "state.db")) {
				t.Errorf("the log does not tell:\n%s", s.Log())
			}
			refuses(t, dir, dir) // the new folder is locked as well
			s.Kill()

			s = start(t, "--dir", dir, "--interval", "1h")
			c = s.Dial()
			left(c, "a", 3000, 993)
			left(c, "b", 100, 997)
			if err := remove(dir); err != nil && name != "folder moved" { // the name is taken by then
				t.Fatal(err)
			}
			spend(c, "c", 10, 1)
			s.Stop()
			c = start(t, "--dir", dir).Dial()
			expect(t, c.Do("DBSIZE"), int64(3110))
			left(c, "c", 10, 999)
		})
	}
}

// TestAnotherFileInTheStatesPlaceIsToldOf puts one there while the server runs.
func TestAnotherFileInTheStatesPlaceIsToldOf(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	s := start(t, "--dir", dir, "--interval", "20ms")
	c := s.Dial()
	spend(c, "a", 100, 7)
	expect(t, c.Do("SAVE"), "OK")
	if err := os.WriteFile(path+".tmp", []byte("notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
	expectError(t, c.Do("SAVE"), "ERR ")
	info := c.Do("INFO", "persistence")
	if n, _ := strconv.Atoi(infoField(info, "rdb_changes_since_last_save")); n < 100 || infoField(info, "rdb_last_bgsave_status") != "err" || !strings.Contains(infoField(info, "flush_last_error"), path) {
		t.Errorf("INFO does not tell:\n%s", info)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := s.Exit(10 * time.Second); code != 1 || !strings.Contains(s.Log(), "lost") {
		t.Errorf("a stop that could not save: exit code %d\n%s", code, s.Log())
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "notes" {
		t.Errorf("the other file became %q, %v", b, err)
	}
}

// TestAPipeInTheStatesPlaceIsRefused fails when the server or a tool waits for
// somebody to write to it.
func TestAPipeInTheStatesPlaceIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	refuses(t, dir, path, "no regular file")
	for _, args := range [][]string{{"inspect", path}, {"inspect", dir}, {"backup", "--dir", dir, filepath.Join(t.TempDir(), "b.db")}} {
		if code, _, stderr := tool(t, args...); code != 1 || !strings.Contains(stderr, path) || !strings.Contains(stderr, "no regular file") {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
}
