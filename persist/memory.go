package persist

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// leastGarbage is from how many bytes on a collection is worth its while.
const leastGarbage = 4 << 20

// garbage counts what writing leaves behind: bbolt copies every value that it
// writes into memory of its own, which it drops. By itself the collector would
// come when the heap has doubled, and the heap is mostly the engine's tables: a
// program of a gigabyte would become one of two. So it is called as often as a
// sixteenth of what is live was written. The tables have few pointers, so a
// collection takes some milliseconds, and nobody waits for it but the
// goroutine that writes.
type garbage struct {
	young int64 // bytes since the last collection
	all   int64 // bytes since memory was last given back

	sample [1]metrics.Sample
}

// most is how many bytes may lie about.
func (g *garbage) most() int64 {
	g.sample[0].Name = "/gc/heap/live:bytes"
	metrics.Read(g.sample[:])
	live := int64(0)
	if v := g.sample[0].Value; v.Kind() == metrics.KindUint64 {
		live = int64(v.Uint64())
	}
	return max(leastGarbage, live/16)
}

// add counts bytes that were written.
func (g *garbage) add(n int64) {
	g.young += n
	g.all += n
	if g.young >= leastGarbage && g.young >= g.most() {
		g.young = 0
		runtime.GC()
	}
}

// giveBack gives unused memory back to the system, if much was written since
// it last did, and reports whether it was so.
func (g *garbage) giveBack() bool {
	if g.all < leastGarbage || g.all < g.most() {
		return false
	}
	g.young, g.all = 0, 0
	debug.FreeOSMemory()
	return true
}
