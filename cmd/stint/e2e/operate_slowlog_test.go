//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

func TestSlowLogByALibrary(t *testing.T) {
	s := start(t)
	for _, proto := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", proto), func(t *testing.T) {
			c := goredis.NewClient(&goredis.Options{Addr: s.Addr, Protocol: proto, ClientName: "ops", PoolSize: 1})
			defer c.Close()
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(c.Ping(t.Context()).Err())
			must(c.ConfigSet(t.Context(), "slowlog-log-slower-than", "0").Err())
			must(c.SlowLogReset(t.Context()).Err())
			before := time.Now()
			must(c.Do(t.Context(), "THROTTLE", "k", 10, "1/h").Err())
			pipe := c.Pipeline()
			for i := range 50 {
				pipe.Do(t.Context(), "THROTTLE", fmt.Sprint("p", i), 60, "1/h")
			}
			_, err := pipe.Exec(t.Context())
			must(err)
			must(c.ConfigSet(t.Context(), "slowlog-log-slower-than", "10000").Err())
			entries, err := c.SlowLogGet(t.Context(), -1).Result()
			must(err)
			if n, err := c.SlowLogLen(t.Context()).Result(); err != nil || n != int64(len(entries)) {
				t.Errorf("SLOWLOG LEN is %d, %v; there are %d", n, err, len(entries))
			}
			single := slices.IndexFunc(entries, func(e goredis.SlowLog) bool { return slices.Equal(e.Args, []string{"THROTTLE", "k", "10", "1/h"}) })
			many := slices.IndexFunc(entries, func(e goredis.SlowLog) bool {
				return len(e.Args) == 5 && e.Args[0] == "THROTTLE" && strings.HasPrefix(e.Args[4], "... (the first of ")
			})
			if single < 0 || many < 0 || many >= single {
				t.Fatalf("the entries are %+v", entries)
			}
			e := entries[single]
			if e.ClientName != "ops" || e.ClientAddr == "" || e.Time.Before(before.Add(-2*time.Second)) || e.Time.After(time.Now().Add(2*time.Second)) || e.Duration > time.Minute {
				t.Errorf("%+v", e)
			}
			for i := 1; i < len(entries); i++ {
				if entries[i-1].ID != entries[i].ID+1 {
					t.Errorf("entry %d follows %d", entries[i].ID, entries[i-1].ID)
				}
			}
			// Quick commands are not noted under the usual threshold.
			must(c.SlowLogReset(t.Context()).Err())
			must(c.Do(t.Context(), "CONFIG", "SET", "slowlog-log-slower-than", "3600000000").Err())
			must(c.Do(t.Context(), "THROTTLE", "k", 10, "1/h").Err())
			if n, err := c.SlowLogLen(t.Context()).Result(); err != nil || n != 0 {
				t.Errorf("%d entries of an hour, %v", n, err)
			}
		})
	}
}

// TestLatencyByALibrary makes commands slow by asking for what is not: a
// threshold of a millisecond, and a command of some.
func TestLatencyByALibrary(t *testing.T) {
	s := start(t, "--latency-threshold", "1ms")
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr})
	defer c.Close()
	keys := make([]any, 1, 100_001)
	keys[0] = "DEL"
	for i := range 100_000 {
		keys = append(keys, fmt.Sprint("key-", i))
	}
	eventually(t, ioTimeout, "a long command is noted", func() bool {
		if err := c.Do(t.Context(), keys...).Err(); err != nil {
			t.Fatal(err)
		}
		events, err := c.Latency(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(events, func(e goredis.Latency) bool { return e.Name == "command" })
		return i >= 0 && events[i].Max >= time.Millisecond && events[i].Latest >= time.Millisecond && events[i].Max < time.Minute
	})
	for _, x := range []struct{ args, want string }{
		{"LATENCY DOCTOR", "command: a command, or the commands of one client"},
		{"LATENCY GRAPH command", "command - high "},
	} {
		args := []any{}
		for f := range strings.FieldsSeq(x.args) {
			args = append(args, f)
		}
		if got, err := c.Do(t.Context(), args...).Text(); err != nil || !strings.Contains(got, x.want) {
			t.Errorf("%s: %q, %v", x.args, got, err)
		}
	}
	history, err := c.Do(t.Context(), "LATENCY", "HISTORY", "command").Slice()
	if err != nil || len(history) == 0 {
		t.Errorf("LATENCY HISTORY gives %v, %v", history, err)
	}
	histogram, err := c.Do(t.Context(), "LATENCY", "HISTOGRAM", "del").Result()
	if err != nil || !strings.Contains(fmt.Sprint(histogram), "calls") {
		t.Errorf("LATENCY HISTOGRAM gives %v, %v", histogram, err)
	}
	if err := c.Do(t.Context(), "LATENCY", "RESET", "command").Err(); err != nil {
		t.Error(err)
	}
}

// TestNoPasswordInWhatOperatorsRead sends passwords right and wrong, everything
// being noted, and looks for them.
func TestNoPasswordInWhatOperatorsRead(t *testing.T) {
	const right, wrong, next = "pw-right-1", "pw-wrong-2", "pw-next-3"
	s := start(t, "--requirepass", right, "--slowlog-slower-than", "0", "--log-level", "debug")
	for _, proto := range []string{"2", "3"} {
		c := s.Dial()
		c.Do("AUTH", wrong)
		c.Do("HELLO", proto, "AUTH", "default", wrong)
		c.Do("HELLO", wrong, proto, "AUTH", "default")
		c.Do("HELLO", proto, "AUTH", "default", right)
		c.Do("AUTH", "default", right)
		c.Do("CONFIG", "SET", "requirepass", right)
		c.Do("CONFIG", "SET", "requirepas", next)
		c.Do("CONFIG", "SET", "maxmemory", "0", "requirepass", next, "timeout")
		for _, read := range [][]string{{"SLOWLOG", "GET", "-1"}, {"CLIENT", "LIST"}, {"CLIENT", "INFO"}, {"INFO", "all"}, {"LATENCY", "DOCTOR"}} {
			text := fmt.Sprint(c.Do(read...))
			if strings.Contains(text, "pw-") {
				t.Errorf("RESP%s: %q shows a password:\n%s", proto, read, text)
			}
		}
		if n, _ := c.Do("SLOWLOG", "LEN").(int64); n < 6 {
			t.Errorf("RESP%s: %d entries: nothing was noted that could show one", proto, n)
		}
	}
	if strings.Contains(s.Log(), "pw-") {
		t.Errorf("the log shows a password:\n%s", s.Log())
	}
}

// TestInfoCountsCommandsAndErrors asks INFO what a few commands did.
func TestInfoCountsCommandsAndErrors(t *testing.T) {
	s := start(t)
	c := s.Dial()
	var b strings.Builder
	for range 100 {
		b.WriteString(command("THROTTLE", "k", "1000", "1/h"))
	}
	b.WriteString(command("THROTTLE", "k", "0", "1/h") + command("THROTTLE", "k") + command("NOPE") + command("SELECT", "99"))
	c.Raw(b.String())
	for range 104 {
		c.Reply()
	}
	text, _ := c.Do("INFO", "all").(string)
	for _, want := range []string{
		"cmdstat_throttle:calls=101,usec=", ",rejected_calls=1,failed_calls=1\r\n", "cmdstat_select:calls=1,", "errorstat_ERR:count=4\r\n", "total_error_replies:4\r\n",
		"latency_percentiles_usec_throttle:p50=", "gc_runs:", "gc_pause_total_us:", "slowlog_len:", "tls_on_plain_port_closed:0\r\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("INFO all lacks %q:\n%s", want, text)
		}
	}
	expect(t, c.Do("CONFIG", "RESETSTAT"), "OK")
	if text, _ := c.Do("INFO", "commandstats").(string); strings.Contains(text, "throttle") {
		t.Errorf("after CONFIG RESETSTAT: %s", text)
	}
	eventually(t, ioTimeout, "the rate shows", func() bool {
		expect(t, c.Do("PING"), "PONG")
		text, _ := c.Do("INFO", "stats").(string)
		return !strings.Contains(text, "instantaneous_ops_per_sec:0\r\n")
	})
}

// TestAPauseOfTheProcessIsNoted stops the process for a while, as a machine
// without a processor to spare would.
func TestAPauseOfTheProcessIsNoted(t *testing.T) {
	s := start(t, "--latency-threshold", "300ms")
	c := s.Dial()
	expect(t, c.Do("PING"), "PONG")
	// A pause that falls into a sweep is the sweep's: then it is tried again.
	var stopped time.Time
	eventually(t, ioTimeout, "a pause is noted", func() bool {
		if time.Since(stopped) > 3*time.Second {
			if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			<-time.After(600 * time.Millisecond)
			if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			stopped = time.Now()
		}
		events, _ := c.Do("LATENCY", "LATEST").([]any)
		return slices.ContainsFunc(events, func(e any) bool { return e.([]any)[0] == "pause" && e.([]any)[3].(int64) >= 300 })
	})
	if text, _ := c.Do("LATENCY", "DOCTOR").(string); !strings.Contains(text, "the whole process did not run") {
		t.Errorf("LATENCY DOCTOR says %s", text)
	}
}
