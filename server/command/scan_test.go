package command

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/limit"
	"github.com/stint-dev/stint/engine/store"
)

// scanner runs store commands on a keyspace of one shard, so that all keys are
// under one lock.
type scanner struct {
	t    *testing.T
	ks   *engine.Keyspace
	exec Executor
}

func newScanner(t *testing.T) *scanner {
	t.Helper()
	ks, err := engine.New(engine.Options{Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	return &scanner{t: t, ks: ks}
}

// take makes a bucket under key that is not full for an hour.
func (s *scanner) take(key string) {
	tx := s.ks.Begin(1)
	defer tx.End()
	_, err := tx.Throttle([]byte(key), limit.BucketLimit{Capacity: 1, Rate: limit.Rate{Count: 1, Period: int64(time.Hour)}}, 1, limit.Mode(0))
	if err != nil {
		s.t.Errorf("take from %.20q: %v", key, err)
	}
}

// run returns the reply of a command.
func (s *scanner) run(args ...string) string {
	var words [][]byte
	for _, a := range args {
		words = append(words, []byte(a))
	}
	cmd, line := Find(words)
	if cmd == nil {
		s.t.Errorf("%.40q: %s", args, line)
		return ""
	}
	tx := s.ks.Begin(1)
	defer tx.End()
	return string(s.exec.Execute(tx, []store.Request{{Args: words, Cmd: cmd.Index(), Proto: 2}}, nil))
}

// scan runs one SCAN and returns the next cursor and the keys.
func (s *scanner) scan(args ...string) (cursor string, keys []string) {
	s.t.Helper()
	lines := strings.Split(s.run(append([]string{"SCAN"}, args...)...), "\r\n")
	// *2, $n, cursor, *n and then $n, key for each.
	if len(lines) < 4 || lines[0] != "*2" {
		s.t.Fatalf("SCAN %.80q replies %.80q", args, lines)
	}
	for i := 5; i < len(lines); i += 2 {
		keys = append(keys, lines[i])
	}
	if want := "*" + strconv.Itoa(len(keys)); lines[3] != want {
		s.t.Fatalf("SCAN %.80q announces %s keys and has %d", args, lines[3], len(keys))
	}
	return lines[2], keys
}

// walk scans to the end and returns how often each key came, in how many calls.
func (s *scanner) walk(args ...string) (keys map[string]int, calls int) {
	s.t.Helper()
	keys = map[string]int{}
	for cursor := "0"; calls == 0 || cursor != "0"; calls++ {
		var found []string
		cursor, found = s.scan(append([]string{cursor}, args...)...)
		for _, key := range found {
			keys[key]++
		}
		if calls > 100_000 {
			s.t.Fatalf("SCAN %.80q does not end", args)
		}
	}
	return keys, calls
}

func TestScanFindsEveryKeyOnceWhateverThePattern(t *testing.T) {
	s := newScanner(t)
	const n = 3000
	for i := range n {
		s.take(fmt.Sprint("k:", i))
	}
	for _, c := range []struct {
		args []string
		want int
	}{
		{nil, n}, {[]string{"MATCH", "*"}, n}, {[]string{"MATCH", "k:?"}, 10}, {[]string{"MATCH", "k:*[02468]", "COUNT", "7"}, n / 2},
		{[]string{"MATCH", strings.Repeat("*", 300) + "1", "COUNT", "500"}, n / 10}, {[]string{"MATCH", "k:[" + strings.Repeat("3", maxPattern-5) + "]*"}, 111},
		{[]string{"MATCH", ""}, 0}, {[]string{"TYPE", "Bucket", "COUNT", "1000000"}, n}, {[]string{"TYPE", "leak", "COUNT", "1000000"}, 0}, {[]string{"COUNT", "9007199254740991"}, n},
	} {
		keys, _ := s.walk(c.args...)
		if len(keys) != c.want {
			t.Errorf("SCAN %.60q finds %d keys, want %d", c.args, len(keys), c.want)
		}
		for key, times := range keys {
			if times != 1 {
				t.Errorf("SCAN %.60q shows %q %d times", c.args, key, times)
			}
		}
	}
}

// worst is a pattern that a comparison with a key of many a costs the most.
var worst = "*" + strings.Repeat("a", 2000) + "b"

// Whoever waits for a shard must not wait for comparisons of a pattern that
// somebody else chose. While a step holds the lock keys are only copied.
func TestScanComparesWithoutTheLock(t *testing.T) {
	s := newScanner(t)
	const n = 3
	for i := range n {
		s.take(fmt.Sprint(i) + strings.Repeat("a", 4000))
	}
	found := scanFound{pattern: []byte(worst)}
	found.step(s.ks.Begin(1), 0, n)
	if found.work != n*scanKeyWork || found.n != 0 || len(found.ends) != n {
		t.Errorf("a step looks at %d bytes, takes %d keys and finds %d; want %d, %d and none", found.work, len(found.ends), found.n, n*scanKeyWork, n)
	}
	found.match()
	if found.work < n*2000*2000 || found.n != 0 || len(found.ends) != 0 {
		t.Errorf("%d bytes are compared afterwards, %d keys found, %d left", found.work, found.n, len(found.ends))
	}
	// The lock is free by then.
	s.take("another key")
}

func TestScanPastEmptyPlacesIsWork(t *testing.T) {
	s := newScanner(t)
	var found scanFound
	if found.step(s.ks.Begin(1), 0, 1); found.work != scanEmptyWork {
		t.Errorf("a step past nothing counts as %d, want %d", found.work, scanEmptyWork)
	}
}

// The count is a hint: one SCAN compares so much and no more, and goes on at
// its cursor.
func TestScanOfMuchWorkEndsEarlyAndGoesOn(t *testing.T) {
	s := newScanner(t)
	const n = 20
	for i := range n {
		s.take(strings.Repeat("a", 4000) + fmt.Sprint(i))
	}
	match := strings.Repeat("a", 2500) + "b"
	s.take(match)
	keys, calls := s.walk("MATCH", worst, "COUNT", "1000000")
	if len(keys) != 1 || keys[match] != 1 {
		t.Errorf("%d keys match, want 1", len(keys))
	}
	if calls < n/4 {
		t.Errorf("%d keys of the worst kind are compared in %d calls", n, calls)
	}
}

// A SCAN that finds nothing works as little as one that finds much.
func TestScanPastManyKeysEndsEarly(t *testing.T) {
	s := newScanner(t)
	const most = maxScanWork / scanKeyWork
	for i := range most + 10_000 {
		s.take(fmt.Sprint("k:", i))
	}
	if cursor, keys := s.scan("0", "TYPE", "leak", "COUNT", "10000000"); cursor == "0" || len(keys) != 0 {
		t.Errorf("%d keys are looked at in one call, cursor %s", most+10_000, cursor)
	}
	if _, keys := s.scan("0", "COUNT", "10000000"); len(keys) == 0 || len(keys) > 200_000 {
		t.Errorf("%d keys in one reply", len(keys))
	}
	if keys, calls := s.walk("MATCH", "k:77777", "COUNT", "10000000"); len(keys) != 1 || calls > 40 {
		t.Errorf("%d keys match, in %d calls", len(keys), calls)
	}
}

func TestCursorIsDigits(t *testing.T) {
	s := newScanner(t)
	for _, cursor := range []string{"", "+0", "-0", "00", "0x0", " 0", "18446744073709551616"} {
		if got := s.run("SCAN", cursor); got != "-"+ErrCursor+"\r\n" {
			t.Errorf("SCAN %q: %q", cursor, got)
		}
	}
	if cursor, _ := s.scan("18446744073709551615"); cursor != "0" {
		t.Errorf("a cursor past everything goes on at %s", cursor)
	}
}

func TestPatternsAreBounded(t *testing.T) {
	s, longest := newScanner(t), strings.Repeat("[", maxPattern)
	const want = "-ERR invalid pattern '[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[['...: want at most 4096 bytes, all patterns of a command together\r\n"
	if got := s.run("SCAN", "0", "MATCH", longest); got != "*2\r\n$1\r\n0\r\n*0\r\n" {
		t.Errorf("SCAN with the longest pattern: %.200q", got)
	}
	if got := s.run("SCAN", "0", "MATCH", longest+"["); got != want {
		t.Errorf("SCAN with a longer pattern: %.200q", got)
	}
	server := newServer()
	server.Config.AddFixed("port", "1")
	conn := newConn(server)
	for _, args := range [][]string{
		{"CONFIG", "GET", longest}, {"CONFIG", "GET", longest[:maxPattern-4], "port"}, {"COMMAND", "LIST", "FILTERBY", "PATTERN", longest},
	} {
		if got := call(t, server, conn, args...); strings.HasPrefix(got, "-") {
			t.Errorf("%.40q with the longest pattern: %.200q", args, got)
		}
	}
	many := []string{"CONFIG", "GET"}
	for range maxPattern + 1 {
		many = append(many, "")
	}
	for _, args := range [][]string{
		{"CONFIG", "GET", longest + "["}, {"CONFIG", "GET", "port", longest}, {"COMMAND", "LIST", "FILTERBY", "PATTERN", longest + "["}, many,
	} {
		if got := call(t, server, conn, args...); !strings.HasPrefix(got, "-ERR invalid pattern") {
			t.Errorf("%.40q with a longer pattern: %.200q", args, got)
		}
	}
}
