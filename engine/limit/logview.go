package limit

// View makes of v, which is new or an older view, a view of the log: the log as it
// is now, to be changed without changing this one. It shares the ring, and keeps
// what is new to itself, so that it costs the changes made to it, not the size of
// the log. This log must not be a view, and must not change while v is used. The
// view of a nil Log is empty.
func (g *Log) View(v *Log) {
	if g == nil {
		g = &noLog
	}
	*v = Log{ring: g.ring, head: g.head, n: g.n, base: g.base, of: g, tail: v.tail[:0]}
}

// noLog is what views of nil Logs are of. It is never written.
var noLog Log

// applyToView is Apply for a view.
func (g *Log) applyToView(c LogChange) {
	if c.Drop > 0 {
		shared := g.n - len(g.tail)
		g.base = g.entry(c.Drop - 1).Sum
		if c.Drop > shared {
			g.tail = g.tail[c.Drop-shared:]
		}
		g.n -= c.Drop
		// Without going around: from the difference Changed knows what has gone, and
		// no shared entry is more than one turn of the ring away.
		g.head += c.Drop
	}
	g.pop(c.Pop)
	if c.Trim > 0 {
		g.own().Sum -= uint64(c.Trim)
	}
	if c.Cost > 0 {
		sum := g.base
		if g.n > 0 {
			if last := g.entry(g.n - 1); last.At >= c.At {
				g.own().Sum += uint64(c.Cost)
				return
			} else {
				sum = last.Sum
			}
		}
		g.tail = append(g.tail, LogEntry{At: c.At, Sum: sum + uint64(c.Cost)})
		g.n++
	}
}

// pop removes the newest entries of a view.
func (g *Log) pop(k int) {
	g.n -= k
	g.tail = g.tail[:len(g.tail)-min(k, len(g.tail))]
}

// own is the newest entry of a view, to be written: one that is shared is copied.
func (g *Log) own() *LogEntry {
	if len(g.tail) == 0 {
		g.tail = append(g.tail, *g.entry(g.n - 1))
	}
	return &g.tail[len(g.tail)-1]
}

// Changed is what was done to the log that this is a view of: of its n entries
// the oldest drop and the newest pop are gone, and the view's entries from kept on
// are new.
func (g *Log) Changed() (drop, pop, kept int) {
	kept = g.n - len(g.tail)
	if kept == 0 {
		// Which end they went from makes no difference.
		return g.of.n, 0, 0
	}
	drop = g.head - g.of.head
	return drop, g.of.n - drop - kept, kept
}

// Between is the sum of the costs of the entries from i up to but not including j.
func (g *Log) Between(i, j int) int64 {
	if i >= j {
		return 0
	}
	return int64(g.entry(j-1).Sum - g.before(i))
}
