package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/stint-dev/stint/bench/internal/load"
	"github.com/stint-dev/stint/bench/internal/proc"
)

// measureIdle opens many connections that say one PING each and then nothing,
// and measures what the server needs for them and how one active client fares
// beside them; in the first round also what is needed half a minute later. Each
// round has a fresh server: what a closed connection leaves
// behind would be taken for less.
func measureIdle(ctx context.Context, o *options, b *binaries, rec *record, progress io.Writer) error {
	for round := range o.Rounds {
		list := o.chosenOf(redisIncr, stintNone)
		for i := range list {
			s := list[(i+round)%len(list)]
			if err := idleBeside(ctx, o, s, b, rec, progress, round == 0); err != nil {
				return fmt.Errorf("%s, idle connections: %w", s.name, err)
			}
		}
	}
	return nil
}

func idleBeside(ctx context.Context, o *options, s subject, b *binaries, rec *record, progress io.Writer, patient bool) error {
	r, err := start(ctx, s, b)
	if err != nil {
		return err
	}
	defer r.Kill()
	active := func() (*load.Result, error) {
		return load.Run(ctx, load.Config{
			Addr: r.Addr, Command: s.command(r.sha), Conns: 1, Pipeline: 1, Loops: 1, Keys: o.Keys, Duration: o.Duration / 2,
		})
	}
	alone, err := active() // also the first keys: they are not the connections' doing
	if err != nil {
		return err
	}
	name := figure("idle", s.name)
	rec.addLatency(figure(name, "alone"), alone)
	before, err := proc.Resident(r.Pid())
	if err != nil {
		return err
	}
	files, err := proc.Files(r.Pid())
	if err != nil {
		return err
	}
	conns, err := openIdle(ctx, r.Addr, o.IdleConns)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	if err != nil {
		return err
	}
	if err := wait(ctx, o.Settle/3); err != nil {
		return err
	}
	after, err := proc.Resident(r.Pid())
	if err != nil {
		return err
	}
	filesAfter, err := proc.Files(r.Pid())
	if err != nil {
		return err
	}
	beside, err := active()
	if err != nil {
		return err
	}
	rec.addLatency(figure(name, "beside"), beside)
	rec.add(figure(name, "bytes"), float64(after-before)/float64(len(conns)))
	rec.add(figure(name, "files"), float64(filesAfter-files)/float64(len(conns)))
	fmt.Fprintf(progress, "idle: %-12s %d connections, %.0f bytes each; p99 of an active one %v, alone %v\n",
		s.name, len(conns), float64(after-before)/float64(len(conns)), beside.Latency(99), alone.Latency(99))
	if !patient {
		return nil
	}
	// A server may give back memory when it sees that they stay silent.
	if err := wait(ctx, 10*o.Settle); err != nil {
		return err
	}
	if after, err = proc.Resident(r.Pid()); err != nil {
		return err
	}
	rec.add(figure(name, "silent"), float64(after-before)/float64(len(conns)))
	fmt.Fprintf(progress, "idle: %-12s after %v more %.0f bytes each\n", s.name, 10*o.Settle, float64(after-before)/float64(len(conns)))
	return nil
}

// openIdle opens connections and sees that each is served. Those that are open
// are returned with an error, too.
func openIdle(ctx context.Context, addr string, n int) (conns []net.Conn, err error) {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	answer := make([]byte, 7)
	for len(conns) < n {
		c, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return conns, fmt.Errorf("connection %d of %d: %w (is ulimit -n above that number?)", len(conns)+1, n, err)
		}
		conns = append(conns, c)
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err = c.Write([]byte("*1\r\n$4\r\nPING\r\n")); err == nil {
			_, err = io.ReadFull(c, answer)
		}
		if err != nil || string(answer) != "+PONG\r\n" {
			return conns, fmt.Errorf("connection %d of %d is not served: %q, %v", len(conns), n, answer, err)
		}
	}
	return conns, nil
}
