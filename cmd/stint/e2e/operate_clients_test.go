//go:build unix

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// fieldsOf reads a line of CLIENT LIST.
func fieldsOf(line string) map[string]string {
	fields := map[string]string{}
	for _, f := range strings.Fields(line) {
		name, value, _ := strings.Cut(f, "=")
		fields[name] = value
	}
	return fields
}

// listed is the lines of CLIENT LIST by the names of the connections.
func listed(text string) map[string]map[string]string {
	all := map[string]map[string]string{}
	for line := range strings.Lines(text) {
		f := fieldsOf(line)
		all[f["name"]] = f
	}
	return all
}

// TestOperatorListsAndKillsClients speaks as a library does.
func TestOperatorListsAndKillsClients(t *testing.T) {
	s := start(t)
	for _, proto := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", proto), func(t *testing.T) {
			ops := goredis.NewClient(&goredis.Options{Addr: s.Addr, Protocol: proto, ClientName: "ops", PoolSize: 1})
			defer ops.Close()
			web := s.Dial()
			expect(t, web.Do("CLIENT", "SETNAME", "web"), "OK")
			expect(t, web.Do("SELECT", "7"), "OK")
			expect(t, web.Do("THROTTLE", "k", "100", "1/h", "0"), ints(1, 100, 100, 0, 0))

			text, err := ops.ClientList(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			all := listed(text)
			w := all["web"]
			for name, want := range map[string]string{
				"addr": web.LocalAddr().String(), "laddr": s.Addr, "db": "7", "cmd": "throttle", "resp": "2", "flags": "N", "user": "default", "tot-cmds": "3", "idle": "0", "omem": "0",
			} {
				if w[name] != want {
					t.Errorf("%s=%s, want %s, in\n%s", name, w[name], want, text)
				}
			}
			if o := all["ops"]; o["cmd"] != "client|list" || o["resp"] != fmt.Sprint(proto) || o["lib-name"] == "" {
				t.Errorf("the own line is %v", o)
			}
			info, err := ops.ClientInfo(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			if info.Name != "ops" || info.Resp != proto || info.LastCmd != "client|info" || info.Addr != all["ops"]["addr"] || info.TotalNetIn == 0 {
				t.Errorf("CLIENT INFO gives %+v", info)
			}

			if n, err := ops.ClientKillByFilter(t.Context(), "ID", w["id"]).Result(); err != nil || n != 1 {
				t.Errorf("CLIENT KILL ID: %d, %v", n, err)
			}
			web.Closed()
			again := s.Dial()
			expect(t, again.Do("PING"), "PONG")
			if err := ops.ClientKill(t.Context(), again.LocalAddr().String()).Err(); err != nil {
				t.Error(err)
			}
			again.Closed()
			if err := ops.ClientKill(t.Context(), again.LocalAddr().String()).Err(); err == nil || !strings.Contains(err.Error(), "ERR No such client") {
				t.Errorf("killed twice: %v", err)
			}
			// The one that asks is spared, and answered when it is not.
			if n, err := ops.ClientKillByFilter(t.Context(), "TYPE", "normal", "MAXAGE", "1000").Result(); err != nil || n != 0 {
				t.Errorf("nobody is that old: %d, %v", n, err)
			}
			if n, err := ops.ClientKillByFilter(t.Context(), "SKIPME", "no", "LADDR", s.Addr).Result(); err != nil || n != 1 {
				t.Errorf("itself: %d, %v", n, err)
			}
			if err := ops.Ping(t.Context()).Err(); err != nil {
				t.Errorf("the library does not connect again: %v", err)
			}
		})
	}
}

// TestASilentClientIsSeenAsIdle waits until the server says so.
func TestASilentClientIsSeenAsIdle(t *testing.T) {
	s := start(t)
	silent, ops := s.Dial(), s.Dial()
	expect(t, silent.Do("CLIENT", "SETNAME", "silent"), "OK")
	eventually(t, ioTimeout, "a second of silence shows", func() bool {
		f := listed(ops.Do("CLIENT", "LIST").(string))["silent"]
		return f["idle"] != "0" && f["age"] != "0"
	})
	expect(t, silent.Do("PING"), "PONG")
	if f := listed(ops.Do("CLIENT", "LIST").(string))["silent"]; f["idle"] != "0" || f["cmd"] != "ping" {
		t.Errorf("after a command: %v", f)
	}
}

// TestAClientThatDoesNotReadIsSeen has one send and not read: the list tells
// which it is, by the replies that it holds, and that it can be closed.
func TestAClientThatDoesNotReadIsSeen(t *testing.T) {
	s := start(t)
	deaf, ops := s.Dial(), s.Dial()
	expect(t, deaf.Do("CLIENT", "SETNAME", "deaf"), "OK")
	echo := command("ECHO", strings.Repeat("x", 900<<10))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = deaf.SetDeadline(time.Now().Add(ioTimeout))
		for range 64 {
			if _, err := deaf.Write([]byte(echo)); err != nil {
				return
			}
		}
	}()
	eventually(t, ioTimeout, "what it does not read shows", func() bool {
		f := listed(ops.Do("CLIENT", "LIST").(string))["deaf"]
		return f["omem"] != "" && f["omem"] != "0"
	})
	expect(t, ops.Do("CLIENT", "KILL", deaf.LocalAddr().String()), "OK")
	<-sent
	eventually(t, ioTimeout, "it is gone", func() bool { return listed(ops.Do("CLIENT", "LIST").(string))["deaf"] == nil })
}

// TestClientsOfAUnixSocketAreListed tells them by their flag.
func TestClientsOfAUnixSocketAreListed(t *testing.T) {
	path := t.TempDir() + "/s.sock"
	s := start(t, "--addr", "127.0.0.1:0", "--addr", "unix:"+path)
	eventually(t, startTimeout, "the socket is listed", func() bool { return strings.Contains(s.Log(), "addr=unix:"+path) })
	a := dial(t, "unix", path)
	expect(t, a.Do("CLIENT", "SETNAME", "local"), "OK")
	f := listed(s.Dial().Do("CLIENT", "LIST").(string))["local"]
	if f["flags"] != "U" || f["addr"] != path+":0" || f["laddr"] != path {
		t.Errorf("%v", f)
	}
}

// TestMaxclientsBeyondTheOpenFilesIsRefused runs under a limit that has room
// for a hundred clients and a few.
func TestMaxclientsBeyondTheOpenFilesIsRefused(t *testing.T) {
	s := launchBy(t, []string{"sh", "-c", `ulimit -n 150 && exec "$0" "$@"`, binary}, "--max-clients", "100", "--durability", "none")
	s.awaitListening()
	c := s.Dial()
	got, _ := c.Do("CONFIG", "SET", "maxclients", "118").(Error)
	if !strings.Contains(string(got), "open 150 files only, sure to be enough for 117 clients") || !strings.Contains(string(got), "ulimit -n") {
		t.Errorf("118 clients: %q", got)
	}
	expect(t, c.Do("CONFIG", "SET", "maxclients", "117"), "OK")
}

// TestOperatorUsesRedisCLI runs the commands as a person types them.
func TestOperatorUsesRedisCLI(t *testing.T) {
	if _, err := exec.LookPath("redis-cli"); err != nil {
		t.Log("redis-cli is not installed: not tried")
		return
	}
	s := start(t, "--slowlog-slower-than", "0")
	host, port, _ := strings.Cut(s.Addr, ":")
	for _, x := range []struct{ args, want string }{
		{"CLIENT LIST", " cmd=client|list "},
		{"-3 CLIENT INFO", " resp=3 "},
		{"CLIENT KILL TYPE normal", "0\n"},
		{"CLIENT KILL SKIPME no", "1\n"},
		{"CLIENT KILL ID x", "ERR client-id should be greater than 0"},
		{"CLIENT HELP", "KILL <ip:port"},
		{"SLOWLOG GET 3", "CLIENT\nHELP\n"},
		{"-3 SLOWLOG LEN", "\n"},
		{"SLOWLOG RESET", "OK\n"},
		{"SLOWLOG HELP", "GET [count]"},
		{"LATENCY DOCTOR", "All is well"},
		{"-3 LATENCY HISTOGRAM slowlog|len", "calls"},
		{"LATENCY HELP", "DOCTOR"},
		{"INFO commandstats", "cmdstat_slowlog|reset:calls=1,"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		out, err := exec.CommandContext(ctx, "redis-cli", append([]string{"-h", host, "-p", port}, strings.Fields(x.args)...)...).CombinedOutput()
		cancel()
		if err != nil || !strings.Contains(string(out), x.want) {
			t.Errorf("redis-cli %s: %v\n%s\nwant %q", x.args, err, out, x.want)
		}
	}
}
