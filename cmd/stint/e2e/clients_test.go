//go:build unix

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// scenario is what every client does: a bucket of 10 with 1/h, so slow that no
// refill can disturb the replies. do returns integers as int64.
func scenario(t *testing.T, do func(args ...any) (any, error)) {
	t.Helper()
	for i, step := range []struct {
		args []any
		want string
	}{
		{[]any{"PING"}, "PONG"},
		{[]any{"THROTTLE", "k", 10, "1/h", 4}, "[1 10 6 0 14400000]"},
		{[]any{"TYPE", "k"}, "bucket"},
		{[]any{"EXISTS", "k", "other"}, "1"},
		{[]any{"DBSIZE"}, "1"},
		{[]any{"DEL", "k"}, "1"},
		{[]any{"THROTTLE", "k", 10, "1/h", 11}, "[0 10 10 -1 0]"},
		{[]any{"CL.THROTTLE", "c", 4, 1, 3600, 2}, "[0 5 3 -1 7200]"},
		{[]any{"LEAK", "l", 3, "1/h", 3}, "[1 3 0 0 10800000]"},
		{[]any{"DEL", "c", "l", "none"}, "2"},
		{[]any{"ECHO", "\x00\r\n\xff"}, "\x00\r\n\xff"},
	} {
		got, err := do(step.args...)
		if err != nil {
			t.Fatalf("step %d, %q: %v", i, step.args, err)
		}
		if b, ok := got.([]byte); ok {
			got = string(b)
		}
		if text := fmt.Sprint(got); text != step.want {
			t.Fatalf("step %d, %q: got %v, want %s", i, step.args, text, step.want)
		}
	}
	if _, err := do("THROTTLE", "k", 10, "5/x"); err == nil || !strings.Contains(err.Error(), "invalid rate '5/x'") {
		t.Fatalf("a wrong rate gives %v", err)
	}
	if _, err := do("FLUSHALL"); err != nil {
		t.Fatal(err)
	}
}

func TestGoRedis(t *testing.T) {
	s := start(t)
	for _, proto := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", proto), func(t *testing.T) {
			c := goredis.NewClient(&goredis.Options{Addr: s.Addr, Protocol: proto, DB: 3, ClientName: "e2e"})
			defer c.Close()
			scenario(t, func(args ...any) (any, error) { return c.Do(t.Context(), args...).Result() })

			pipe := c.Pipeline()
			for range 100 {
				pipe.Do(t.Context(), "THROTTLE", "p", 60, "1/h")
			}
			replies, err := pipe.Exec(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			allowed := int64(0)
			for _, r := range replies {
				all, err := r.(*goredis.Cmd).Int64Slice()
				if err != nil {
					t.Fatal(err)
				}
				allowed += all[0]
			}
			if allowed != 60 {
				t.Errorf("%d of 100 were allowed, want 60", allowed)
			}
			if ttl, err := c.PTTL(t.Context(), "p").Result(); err != nil || ttl < 59*time.Hour || ttl > 60*time.Hour {
				t.Errorf("PTTL of a bucket that fills in 60 h is %v, %v", ttl, err)
			}
			var keys []string
			for it := c.Scan(t.Context(), 0, "p*", 10).Iterator(); it.Next(t.Context()); {
				keys = append(keys, it.Val())
			}
			if fmt.Sprint(keys) != "[p]" {
				t.Errorf("SCAN finds %v, want [p]", keys)
			}
			if info, err := c.Info(t.Context(), "server").Result(); err != nil || !strings.Contains(info, "redis_version:7.") {
				t.Errorf("INFO server gives %q, %v", info, err)
			}
			if err := c.FlushDB(t.Context()).Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestGoRedisAuthenticates(t *testing.T) {
	s := start(t, "--requirepass", "open sesame")
	for _, proto := range []int{2, 3} {
		c := goredis.NewClient(&goredis.Options{Addr: s.Addr, Protocol: proto, Password: "open sesame"})
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Errorf("RESP%d: %v", proto, err)
		}
		c.Close()
		c = goredis.NewClient(&goredis.Options{Addr: s.Addr, Protocol: proto, Password: "wrong", MaxRetries: -1})
		if err := c.Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
			t.Errorf("RESP%d: a wrong password gives %v", proto, err)
		}
		c.Close()
	}
}

func TestRueidis(t *testing.T) {
	s := start(t)
	for _, resp2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("RESP2=%v", resp2), func(t *testing.T) {
			// RESP2 is only spoken without client-side caching.
			c, err := rueidis.NewClient(rueidis.ClientOption{
				InitAddress: []string{s.Addr}, AlwaysRESP2: resp2, DisableCache: resp2, ForceSingleClient: true, ClientName: "e2e",
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			scenario(t, func(args ...any) (any, error) {
				words := make([]string, len(args))
				for i, a := range args {
					words[i] = fmt.Sprint(a)
				}
				v, err := c.Do(t.Context(), c.B().Arbitrary(words...).Build()).ToAny()
				return v, err
			})
			cmds := make(rueidis.Commands, 100)
			for i := range cmds {
				cmds[i] = c.B().Arbitrary("THROTTLE", "p", "60", "1/h").Build()
			}
			allowed := int64(0)
			for _, r := range c.DoMulti(t.Context(), cmds...) {
				all, err := r.AsIntSlice()
				if err != nil {
					t.Fatal(err)
				}
				allowed += all[0]
			}
			if allowed != 60 {
				t.Errorf("%d of 100 were allowed, want 60", allowed)
			}
			if err := c.Do(t.Context(), c.B().Flushall().Build()).Error(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestRueidisDiscoversASingleNode lets the client find out by itself whether
// it speaks to a cluster.
func TestRueidisDiscoversASingleNode(t *testing.T) {
	s := start(t)
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Do(t.Context(), c.B().Ping().Build()).Error(); err != nil {
		t.Fatal(err)
	}
}

func TestRedigo(t *testing.T) {
	s := start(t)
	c, err := redis.Dial("tcp", s.Addr, redis.DialDatabase(2), redis.DialClientName("e2e"), redis.DialReadTimeout(ioTimeout))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	scenario(t, func(args ...any) (any, error) { return c.Do(args[0].(string), args[1:]...) })
	for range 100 {
		if err := c.Send("THROTTLE", "p", 60, "1/h"); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	allowed := int64(0)
	for range 100 {
		all, err := redis.Int64s(c.Receive())
		if err != nil {
			t.Fatal(err)
		}
		allowed += all[0]
	}
	if allowed != 60 {
		t.Errorf("%d of 100 were allowed, want 60", allowed)
	}
}

func TestRawBytesRESP2AndRESP3(t *testing.T) {
	s := start(t)
	c := s.Dial()
	c.Raw("*1\r\n$4\r\nPING\r\n*4\r\n$8\r\nTHROTTLE\r\n$1\r\nk\r\n$2\r\n10\r\n$3\r\n1/h\r\nPING inline\r\n")
	want := "+PONG\r\n*5\r\n:1\r\n:10\r\n:9\r\n:0\r\n:3600000\r\n$6\r\ninline\r\n"
	wantBytes(t, c, want)
	c.Raw(command("HELLO", "3"))
	hello, ok := c.Reply().(Map)
	if !ok {
		t.Fatalf("HELLO 3 replies %#v, want a map", hello)
	}
	fields := map[any]any{}
	for i := 0; i < len(hello); i += 2 {
		fields[hello[i]] = hello[i+1]
	}
	if fields["proto"] != int64(3) || fields["role"] != "master" || fields["mode"] != "standalone" {
		t.Errorf("HELLO 3 replies %v", fields)
	}
	c.Raw(command("THROTTLE", "k", "10", "1/h", "0"))
	wantBytes(t, c, "*5\r\n:1\r\n:10\r\n:9\r\n:0\r\n:3600000\r\n"[:len("*5\r\n:1\r\n:10\r\n:9\r\n:0\r\n")])
	c.r.ReadString('\n') // reset: some ms have passed
	c.Raw(command("INSPECT", "none"))
	wantBytes(t, c, "_\r\n")
	c.Raw(command("HELLO", "2"))
	c.Reply()
	c.Raw(command("INSPECT", "none"))
	got, _ := c.r.ReadString('\n')
	if got != "$-1\r\n" && got != "*-1\r\n" {
		t.Errorf("RESP2 null is %q", got)
	}
}

// wantBytes reads as many bytes as want has and compares.
func wantBytes(t *testing.T, c *Conn, want string) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(ioTimeout))
	got := make([]byte, len(want))
	if _, err := readFull(c, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

func readFull(c *Conn, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = c.r.Read(b[n:])
		n += m
	}
	return n, err
}

// TestPipelineSplitAtEveryByte sends two commands in two writes, cut at every
// place.
func TestPipelineSplitAtEveryByte(t *testing.T) {
	s := start(t)
	c := s.Dial()
	text := command("THROTTLE", "k", "10", "100/m", "0") + command("PING")
	for i := 1; i < len(text); i++ {
		c.Raw(text[:i])
		c.Raw(text[i:])
		expect(t, c.Reply(), ints(1, 10, 10, 0, 0))
		expect(t, c.Reply(), "PONG")
	}
}

func TestUnixSocket(t *testing.T) {
	path := t.TempDir() + "/s.sock"
	s := start(t, "--addr", "127.0.0.1:0", "--addr", "unix:"+path)
	eventually(t, startTimeout, "the socket is listed", func() bool { return strings.Contains(s.Log(), "addr=unix:"+path) })
	a, b := dial(t, "unix", path), s.Dial()
	expect(t, a.Do("THROTTLE", "k", "10", "1/h"), ints(1, 10, 9, 0, 3600000))
	if got, ok := b.Do("THROTTLE", "k", "10", "1/h").([]any); !ok || got[2] != int64(8) {
		t.Fatalf("TCP and socket do not share the keyspace: %v", got)
	}
	s.Stop()
	// The name is free again: a second server takes it.
	start(t, "--addr", "127.0.0.1:0", "--addr", "unix:"+path)
	expect(t, dial(t, "unix", path).Do("PING"), "PONG")
}

// TestRedisTools runs redis-cli and redis-benchmark where they are installed.
func TestRedisTools(t *testing.T) {
	s := start(t)
	host, port, _ := strings.Cut(s.Addr, ":")
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"redis-cli", "-h", host, "-p", port, "--no-raw", "THROTTLE", "user:42", "10", "100/h"}, "1) (integer) 1\n2) (integer) 10\n3) (integer) 9\n4) (integer) 0\n5) (integer) 36000\n"},
		{[]string{"redis-cli", "-3", "-h", host, "-p", port, "PING"}, "PONG\n"},
		{[]string{"redis-cli", "-h", host, "-p", port, "--scan"}, "user:42\n"},
		{[]string{"redis-benchmark", "-h", host, "-p", port, "-n", "20000", "-P", "16", "-r", "1000", "-q", "THROTTLE", "k:__rand_int__", "10", "20", "1"}, "requests per second"},
		{[]string{"redis-benchmark", "-3", "-h", host, "-p", port, "-n", "2000", "-q", "-t", "ping"}, "requests per second"},
	} {
		if _, err := exec.LookPath(x.args[0]); err != nil {
			t.Logf("%s is not installed: not tried", x.args[0])
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, x.args[0], x.args[1:]...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), x.want) || strings.Contains(string(out), "ERR ") {
			t.Errorf("%q: %v\n%s\nwant %q", x.args, err, out, x.want)
		}
	}
}
