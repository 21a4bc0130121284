package command

import (
	"time"

	"github.com/stint-dev/stint/engine/store"
)

// A command takes a fraction of a microsecond, so a reading of the clock for
// each would be a good part of it. The unit that is measured is what runs
// without a pause between: the batch of store commands that stand next to each
// other in a connection's pipeline, or one command about the connection. A
// command flagged Slow is a batch by itself. Two readings of the clock enclose
// it; each command of a batch counts with its equal share.

// epoch is where Ticks counts from.
var epoch = time.Now()

// Ticks is the time in ns since the program began, on the monotonic clock.
func Ticks() int64 { return int64(time.Since(epoch)) }

// Begin notes for CLIENT LIST that the connection begins to run the command
// with that index at the time at (Ticks): of a batch, its last. It is one
// atomic store.
func (c *Conn) Begin(cmd int32, at int64) {
	if c.peer != nil {
		c.peer.last.Store(uint64(at/1e6)<<lastBits | uint64(cmd+1))
	}
}

// Observe notes that the store decided the requests of c, at least one, between
// start and end (Ticks).
func (s *Server) Observe(c *Conn, requests []store.Request, start, end int64) {
	took := end - start
	share := took / int64(len(requests))
	for i := 0; i < len(requests); {
		// Neighbours of the same name are counted at once: a pipeline mostly
		// repeats one command.
		cmd, from := requests[i].Cmd, i
		for i++; i < len(requests) && requests[i].Cmd == cmd; i++ {
		}
		c.usage.add(cmd, int64(i-from), share)
	}
	if from := s.attention.Load(); from > 0 && took >= from-1 {
		s.attend(c, requests[0].Cmd, requests[0].Args, len(requests), took)
	}
}

// ObserveConn notes that c ran the connection command cmd with args between
// start and end (Ticks), and replied reply. It also publishes what the command
// has changed about the connection.
func (s *Server) ObserveConn(c *Conn, cmd *Command, args [][]byte, reply []byte, start, end int64) {
	took := end - start
	c.publish()
	c.usage.add(cmd.index, 1, took)
	if len(reply) > 0 && reply[0] == '-' {
		s.Failed(cmd.index, reply)
	}
	if from := s.attention.Load(); from > 0 && took >= from-1 {
		s.attend(c, cmd.index, args, 1, took)
	}
}

// attend looks closer at what took long: n commands, the first of which is
// given. took is in ns.
func (s *Server) attend(c *Conn, cmd int32, args [][]byte, n int, took int64) {
	if from := s.slow.from.Load(); from > 0 && took >= from-1 {
		s.slow.add(slowEntry{
			unix: s.now().Unix(), us: took / 1e3, addr: c.Addr, name: c.Name,
			args: slowArgs(commands.all[cmd], args, n),
		})
	}
	s.spike("command", took)
}

// spike notes an event that took so many ns, if that is long enough.
func (s *Server) spike(event string, took int64) {
	if from := s.spikes.from.Load(); from > 0 && took >= from {
		s.spikes.add(event, s.now().Unix(), took/1e6)
	}
}

// Spike notes an event of the server's own, such as a sweep, if it took as long
// as LATENCY asks for. The events are those that LATENCY DOCTOR knows.
func (s *Server) Spike(event string, took time.Duration) { s.spike(event, int64(took)) }

// WatchFlush notes the last flush as an event if there was one since the call
// before. Whoever runs now and then calls it, from one goroutine.
func (s *Server) WatchFlush() {
	if s.Persist == nil || s.spikes.from.Load() == 0 {
		return
	}
	p := s.Persist.Info()
	if p.Flushes != s.spikes.flushes {
		s.spikes.flushes = p.Flushes
		s.Spike("flush", p.LastDuration)
	}
}

// SetSlowerThan sets from how many microseconds on SLOWLOG notes what runs; 0
// is everything, below 0 nothing.
func (s *Server) SetSlowerThan(us int64) {
	from := int64(0)
	if us >= 0 {
		from = min(us, maxThreshold)*1e3 + 1
	}
	s.slow.from.Store(from)
	s.attendFrom()
}

// SlowerThan is what SetSlowerThan has set, -1 before.
func (s *Server) SlowerThan() int64 {
	if from := s.slow.from.Load(); from > 0 {
		return (from - 1) / 1e3
	}
	return -1
}

// SetLatencyThreshold sets from how many milliseconds on LATENCY notes what
// happens; 0 is nothing.
func (s *Server) SetLatencyThreshold(ms int64) {
	s.spikes.from.Store(min(ms, maxThreshold) * 1e6)
	s.attendFrom()
}

// LatencyThreshold is what SetLatencyThreshold has set, 0 before.
func (s *Server) LatencyThreshold() int64 { return s.spikes.from.Load() / 1e6 }

// maxThreshold bounds thresholds so that they fit in ns: 104 days in ms.
const maxThreshold = 9_000_000_000

// attendFrom sets attention to the lower threshold of those that are set. Two
// calls at once may each see the other's old value only if neither is done: the
// lock makes one of them last.
func (s *Server) attendFrom() {
	s.attending.Lock()
	defer s.attending.Unlock()
	from := s.slow.from.Load()
	if s.SlowLog() == 0 {
		from = 0 // nothing would be kept
	}
	if spike := s.spikes.from.Load(); spike > 0 && (from == 0 || spike+1 < from) {
		from = spike + 1
	}
	s.attention.Store(from)
}
