package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/stint-dev/stint/bench/internal/load"
	"github.com/stint-dev/stint/bench/internal/proc"
)

// Names of the subjects. The first is what the ratios are against.
const (
	redisLua      = "redis-lua"
	redisIncr     = "redis-incr"
	stintNone     = "stint-none"
	stintInterval = "stint-interval"
)

// tokenBucket is how a token bucket is commonly made on Redis.
//
//go:embed bucket.lua
var tokenBucket string

// subject is one contestant: a server and the command that it is measured by.
type subject struct {
	name   string
	title  string
	redis  bool // needs redis-server, else stint
	server func(binary, host, port, dir string) []string
	// command decides about a key; sha is that of the script, for who uses it.
	command func(sha string) []string
	// fill is the same with a limit that leaves every bucket live for an hour.
	fill func(sha string) []string
	// spend takes a number of spendable units from a bucket that gets none
	// back while anything is measured; nil where there are no limits.
	spend func(sha string, cost int) []string
}

// spendable is the capacity of the buckets of spend. A bucket whose units were
// all taken refuses; any other admits for a whole run.
const spendable = 1_000_000

// maxClients leaves room for the connections beside the idle ones.
const maxClients = 15_000

// The key is 14 bytes long once it is filled in.
const key = "k:" + load.Placeholder

func subjects() []subject {
	redisServer := func(binary, host, port, dir string) []string {
		return []string{binary, "--bind", host, "--port", port, "--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no", "--maxclients", strconv.Itoa(maxClients)}
	}
	stintServer := func(durability string) func(binary, host, port, dir string) []string {
		return func(binary, host, port, dir string) []string {
			return []string{binary, "--addr", host + ":" + port, "--dir", filepath.Join(dir, "data"), "--durability", durability, "--max-clients", strconv.Itoa(maxClients)}
		}
	}
	throttle := func(string) []string { return []string{"THROTTLE", key, "10", "20", "1"} }
	throttleSlow := func(string) []string { return []string{"THROTTLE", key, "10", "1/h", "1"} }
	spend := func(_ string, cost int) []string {
		return []string{"THROTTLE", key, strconv.Itoa(spendable), "1/h", strconv.Itoa(cost)}
	}
	incr := func(string) []string { return []string{"INCR", key} }
	return []subject{
		{
			name: redisLua, title: "Redis, token bucket in Lua", redis: true, server: redisServer,
			command: func(sha string) []string { return []string{"EVALSHA", sha, "1", key, "10", "20", "1000000", "1"} },
			fill:    func(sha string) []string { return []string{"EVALSHA", sha, "1", key, "10", "1", "3600000000", "1"} },
			spend: func(sha string, cost int) []string {
				return []string{"EVALSHA", sha, "1", key, strconv.Itoa(spendable), "1", "3600000000", strconv.Itoa(cost)}
			},
		},
		{name: redisIncr, title: "Redis, INCR", redis: true, server: redisServer, command: incr, fill: incr},
		{name: stintNone, title: "stint, durability none", server: stintServer("none"), command: throttle, fill: throttleSlow, spend: spend},
		{name: stintInterval, title: "stint, durability interval", server: stintServer("interval"), command: throttle, fill: throttleSlow, spend: spend},
	}
}

func subjectNames() []string {
	var names []string
	for _, s := range subjects() {
		names = append(names, s.name)
	}
	return names
}

// binaries are the programs that are measured. remove takes away what was
// built for the run.
type binaries struct {
	redis, stint string
	benchmark    string   // redis-benchmark, empty if not installed
	flags        []string // more of them for stint
	remove       func()
}

const installRedis = "install it (Debian, Ubuntu: apt-get install redis-server redis-tools; macOS: brew install redis), or measure without it: -subjects " + stintNone + "," + stintInterval

func findBinaries(ctx context.Context, o *options) (*binaries, error) {
	b := &binaries{remove: func() {}, flags: o.ServerFlags}
	needRedis, needStint := false, false
	for _, s := range o.chosenSubjects() {
		needRedis = needRedis || s.redis
		needStint = needStint || !s.redis
	}
	var err error
	if needRedis {
		if b.redis, err = exec.LookPath(o.Redis); err != nil {
			return nil, fmt.Errorf("%s was not found: %s", o.Redis, installRedis)
		}
	}
	if path, err := exec.LookPath("redis-benchmark"); err == nil {
		b.benchmark = path
	}
	if !needStint {
		return b, nil
	}
	if o.Stint != "" {
		// Servers run in folders of their own.
		if b.stint, err = filepath.Abs(o.Stint); err == nil {
			_, err = os.Stat(b.stint)
		}
		if err != nil {
			return nil, fmt.Errorf("there is no stint binary: %w; `make build` makes one", err)
		}
		return b, nil
	}
	dir, err := os.MkdirTemp("", "stint-bench-build-")
	if err != nil {
		return nil, fmt.Errorf("no folder to build stint in: %w", err)
	}
	b.remove = func() { _ = os.RemoveAll(dir) }
	b.stint = filepath.Join(dir, "stint")
	if err := buildStint(ctx, ".", b.stint); err != nil {
		b.remove()
		return nil, err
	}
	return b, nil
}

// buildStint builds the server of the source tree that has folder within.
func buildStint(ctx context.Context, folder, binary string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, "github.com/stint-dev/stint/cmd/stint")
	build.Dir = folder
	if said, err := build.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("stint cannot be built: %w: %s", err, strings.TrimSpace(string(said))), ctx.Err())
	}
	return nil
}

func (o *options) chosenSubjects() []subject { return o.chosenOf(subjectNames()...) }

// chosenOf are the subjects of these names that are to be measured at all, in
// the order of the table.
func (o *options) chosenOf(names ...string) []subject {
	var list []subject
	for _, s := range subjects() {
		if slices.Contains(names, s.name) && slices.Contains(o.Subjects, s.name) {
			list = append(list, s)
		}
	}
	return list
}

// runningSubject is a subject whose server is up.
type runningSubject struct {
	subject
	*proc.Server
	sha string
}

// start starts a subject's server; more are flags for it.
func start(ctx context.Context, s subject, b *binaries, more ...string) (*runningSubject, error) {
	binary := b.stint
	if s.redis {
		binary = b.redis
	} else {
		more = slices.Concat(b.flags, more)
	}
	server, err := proc.Start(ctx, s.name, func(host, port, dir string) []string {
		return append(s.server(binary, host, port, dir), more...)
	})
	if err != nil {
		return nil, err
	}
	r := &runningSubject{subject: s, Server: server}
	if s.name == redisLua {
		if r.sha, err = redis.String(r.ask("SCRIPT", "LOAD", tokenBucket)); err != nil {
			server.Stop()
			return nil, fmt.Errorf("the Lua script was not accepted: %w", err)
		}
	}
	return r, nil
}

// ask sends one command on a connection of its own.
func (r *runningSubject) ask(command string, args ...any) (any, error) {
	conn, err := redis.Dial("tcp", r.Addr, redis.DialConnectTimeout(5*time.Second), redis.DialReadTimeout(30*time.Second))
	if err != nil {
		return nil, fmt.Errorf("%s is not reached: %w", r.name, err)
	}
	defer conn.Close()
	return conn.Do(command, args...)
}

// info is one field of INFO as a number.
func (r *runningSubject) info(section, field string) (float64, error) {
	text, err := redis.String(r.ask("INFO", section))
	if err != nil {
		return 0, fmt.Errorf("INFO %s of %s: %w", section, r.name, err)
	}
	value := fieldOf(text, field, "")
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return 0, fmt.Errorf("INFO %s of %s has no number %s: %q", section, r.name, field, value)
	}
	return v, nil
}

// live is how many keys hold something.
func (r *runningSubject) live() (int64, error) {
	n, err := redis.Int64(r.ask("DBSIZE"))
	if err != nil {
		return 0, fmt.Errorf("the number of live keys of %s is not known: %w", r.name, err)
	}
	return n, nil
}

// put runs a command once for each of some keys, as fast as it goes, over few
// connections: their buffers are not what is measured.
func (r *runningSubject) put(ctx context.Context, command []string, first, keys int64) error {
	_, err := load.Run(ctx, load.Config{
		Addr: r.Addr, Command: command, Conns: 4, Pipeline: 64, Loops: 1,
		First: first, Keys: keys, Sequential: true, Requests: keys,
	})
	return err
}

// wait waits, or returns ctx's error if it is done before.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
