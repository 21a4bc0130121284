package limit

import "unsafe"

// LogEntry is one entry of a sliding log: what was admitted at At (unix ns).
// Sum is the running sum of all costs up to and including this entry. It
// wraps; only differences of it are used. It is there so that a wait is found
// by binary search, and so that nothing has to add up to a million costs.
type LogEntry struct {
	At  int64
	Sum uint64
}

// Sizes of a Log in memory, bytes.
const (
	entryBytes = int(unsafe.Sizeof(LogEntry{}))
	logBytes   = int(unsafe.Sizeof(Log{}))
)

// minEntries is the room a log begins with.
const minEntries = 4

// Log is the state of a sliding log: a ring of entries, oldest first, with
// strictly rising times, 16 bytes each. The zero Log is empty. A nil Log may
// be read like an empty one. It is not safe for use from several goroutines
// while one of them calls Apply.
type Log struct {
	ring []LogEntry // its length is the room there is
	head int        // where the oldest entry is
	n    int        // how many there are
	base uint64     // Sum before the oldest entry

	// A view has the ring of another log, which it does not write: its newest
	// entries are here. See View.
	tail []LogEntry
	of   *Log // nil: this is no view
}

// Len is how many entries there are.
func (g *Log) Len() int {
	if g == nil {
		return 0
	}
	return g.n
}

// At is the time (unix ns) and cost of entry i, 0 being the oldest.
func (g *Log) At(i int) (at, cost int64) {
	e := g.entry(i)
	return e.At, int64(e.Sum - g.before(i))
}

// Total is the sum of all costs.
func (g *Log) Total() int64 {
	if g.Len() == 0 {
		return 0
	}
	return int64(g.entry(g.n-1).Sum - g.base)
}

// Bytes is the memory that the log takes.
func (g *Log) Bytes() int {
	if g == nil {
		return 0
	}
	return logBytes + len(g.ring)*entryBytes
}

func (g *Log) entry(i int) *LogEntry {
	if t := i - (g.n - len(g.tail)); t >= 0 && g.of != nil {
		return &g.tail[t]
	}
	i += g.head
	if i >= len(g.ring) {
		i -= len(g.ring)
	}
	return &g.ring[i]
}

// before is the running sum before entry i.
func (g *Log) before(i int) uint64 {
	if i == 0 {
		return g.base
	}
	return g.entry(i - 1).Sum
}

// LogChange is what a decision does to a log. It is decided first and applied
// later, so that whoever keeps the log can see whether the memory is there.
// The steps happen in the order of the fields. The zero LogChange changes
// nothing.
type LogChange struct {
	Drop int   // this many of the oldest entries are removed
	Pop  int   // this many of the newest are removed
	Trim int64 // units taken off the newest one left, below its cost
	At   int64 // when Cost was admitted, unix ns
	Cost int64 // appended as an entry, or added to the newest if that is of the same time; 0: nothing
}

// Apply changes the log. It allocates only when the log has to grow, or
// shrinks because most of its room stands empty.
func (g *Log) Apply(c LogChange) {
	if g.of != nil {
		g.applyToView(c)
		return
	}
	g.drop(c.Drop)
	g.n -= c.Pop
	if c.Trim > 0 {
		g.entry(g.n - 1).Sum -= uint64(c.Trim)
	}
	if c.Cost > 0 {
		g.append(c.At, c.Cost)
	}
	if len(g.ring) > minEntries && g.n < len(g.ring)/4 {
		g.resize(max(minEntries, 2*g.n))
	}
}

// GrowBytes is by how much Apply would add to the memory that the log takes; 0
// where it would not. For a nil Log it counts a new one.
func (g *Log) GrowBytes(c LogChange) int {
	if g == nil {
		if c.Cost > 0 {
			return logBytes + minEntries*entryBytes
		}
		return 0
	}
	left := g.n - c.Drop - c.Pop
	if c.Cost == 0 || left < len(g.ring) || left > 0 && g.entry(c.Drop+left-1).At >= c.At {
		return 0
	}
	return (grown(len(g.ring)) - len(g.ring)) * entryBytes
}

func (g *Log) drop(k int) {
	if k == 0 {
		return
	}
	g.base = g.entry(k - 1).Sum
	g.n -= k
	if g.head += k; g.head >= len(g.ring) {
		g.head -= len(g.ring)
	}
}

func (g *Log) append(at, cost int64) {
	sum := g.base
	if g.n > 0 {
		last := g.entry(g.n - 1)
		if last.At >= at {
			last.Sum += uint64(cost)
			return
		}
		sum = last.Sum
	}
	if g.n == len(g.ring) {
		g.resize(grown(len(g.ring)))
	}
	g.n++
	*g.entry(g.n - 1) = LogEntry{At: at, Sum: sum + uint64(cost)}
}

// grown is the room after one more growth: half as much again, which copies an
// entry three times at most over the life of a log.
func grown(room int) int {
	return max(minEntries, min(room+room/2, MaxLogEntries))
}

func (g *Log) resize(room int) {
	ring := make([]LogEntry, room)
	k := copy(ring, g.ring[g.head:min(g.head+g.n, len(g.ring))])
	copy(ring[k:], g.ring[:g.n-k])
	g.ring, g.head = ring, 0
}

// search is the first of the entries lo to n−1 at which found is true, or n;
// found must be false up to some entry and true from there on. It looks at lo
// first, because mostly nothing or little has left the window.
func (g *Log) search(lo int, found func(*LogEntry) bool) int {
	hi, step := g.n, 1
	for lo < hi {
		mid := min(lo+step-1, lo+(hi-lo)/2)
		if found(g.entry(mid)) {
			hi = mid
		} else {
			lo = mid + 1
			step *= 2
		}
	}
	return lo
}
