package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
}

// The key is 14 bytes long once it is filled in.
const key = "k:" + load.Placeholder

func subjects() []subject {
	redisServer := func(binary, host, port, dir string) []string {
		return []string{binary, "--bind", host, "--port", port, "--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no"}
	}
	stintServer := func(durability string) func(binary, host, port, dir string) []string {
		return func(binary, host, port, dir string) []string {
			return []string{binary, "--addr", host + ":" + port, "--dir", filepath.Join(dir, "data"), "--durability", durability}
		}
	}
	throttle := func(string) []string { return []string{"THROTTLE", key, "10", "20", "1"} }
	throttleSlow := func(string) []string { return []string{"THROTTLE", key, "10", "1/h", "1"} }
	incr := func(string) []string { return []string{"INCR", key} }
	return []subject{
		{
			name: redisLua, title: "Redis, token bucket in Lua", redis: true, server: redisServer,
			command: func(sha string) []string { return []string{"EVALSHA", sha, "1", key, "10", "20", "1000000", "1"} },
			fill:    func(sha string) []string { return []string{"EVALSHA", sha, "1", key, "10", "1", "3600000000", "1"} },
		},
		{name: redisIncr, title: "Redis, INCR", redis: true, server: redisServer, command: incr, fill: incr},
		{name: stintNone, title: "stint, durability none", server: stintServer("none"), command: throttle, fill: throttleSlow},
		{name: stintInterval, title: "stint, durability interval", server: stintServer("interval"), command: throttle, fill: throttleSlow},
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
	benchmark    string // redis-benchmark, empty if not installed
	remove       func()
}

const installRedis = "install it (Debian, Ubuntu: apt-get install redis-server redis-tools; macOS: brew install redis), or measure without it: -subjects " + stintNone + "," + stintInterval

func findBinaries(ctx context.Context, o *options) (*binaries, error) {
	b := &binaries{remove: func() {}}
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
	build := exec.CommandContext(ctx, "go", "build", "-o", b.stint, "github.com/stint-dev/stint/cmd/stint")
	if said, err := build.CombinedOutput(); err != nil {
		b.remove()
		return nil, errors.Join(fmt.Errorf("stint cannot be built: %w: %s", err, strings.TrimSpace(string(said))), ctx.Err())
	}
	return b, nil
}

func (o *options) chosenSubjects() []subject {
	var list []subject
	for _, s := range subjects() {
		for _, name := range o.Subjects {
			if s.name == name {
				list = append(list, s)
			}
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

func start(ctx context.Context, s subject, b *binaries) (*runningSubject, error) {
	binary := b.stint
	if s.redis {
		binary = b.redis
	}
	server, err := proc.Start(ctx, s.name, func(host, port, dir string) []string { return s.server(binary, host, port, dir) })
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
