package limit

// View is the log as it is now, to be changed without changing this one: it
// shares the ring, and keeps what is new to itself, so that it costs the changes
// made to it, not the size of the log. This log must not change while the view is
// used. A nil Log has an empty view.
func (g *Log) View() *Log {
	if g == nil {
		return &Log{of: new(Log)}
	}
	v := *g
	v.of = g
	v.tail = append([]LogEntry(nil), g.tail...) // of a view's view
	return &v
}

// applyToView is Apply for a view.
func (g *Log) applyToView(c LogChange) {
	if c.Drop > 0 {
		shared := g.n - len(g.tail)
		g.base = g.entry(c.Drop - 1).Sum
		if c.Drop > shared {
			g.tail = g.tail[c.Drop-shared:]
		}
		g.n -= c.Drop
		if g.head += min(c.Drop, shared); len(g.ring) > 0 && g.head >= len(g.ring) {
			g.head -= len(g.ring)
		}
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
	if drop < 0 {
		drop += len(g.ring)
	}
	return drop, g.of.n - drop - kept, kept
}

// Between is the sum of the costs of the entries from i up to but not including j.
func (g *Log) Between(i, j int) int64 {
	if i >= j {
		return 0
	}
	return int64(g.entry(j-1).Sum - g.before(i))
}
