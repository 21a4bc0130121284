package command

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// infoErrorstats counts the errors that were replied, by their first word.
func infoErrorstats(w *infoWriter, s *Server) {
	for _, e := range s.errors.list() {
		w.line("errorstat_"+e.word, fmt.Sprintf("count=%d", e.n))
	}
}

// infoCommandstats tells of each command that was called or refused how often,
// and how long it took: its share of what was decided together.
func infoCommandstats(w *infoWriter, s *Server) {
	for _, c := range commands.all {
		u := s.usage.of(c.index)
		if u.calls+u.rejected == 0 {
			continue
		}
		perCall := 0.0
		if u.calls > 0 {
			perCall = float64(u.ns) / 1e3 / float64(u.calls)
		}
		w.line("cmdstat_"+c.full, fmt.Sprintf("calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d",
			u.calls, u.ns/1e3, perCall, u.rejected, u.failed))
	}
}

// infoLatencystats tells for each command that was called the time that half of
// the calls, 99 % and 99.9 % did not exceed, in microseconds.
func infoLatencystats(w *infoWriter, s *Server) {
	for _, c := range commands.all {
		u := s.usage.of(c.index)
		if u.calls == 0 {
			continue
		}
		us := func(q float64) float64 { return float64(u.quantile(q)) / 1e3 }
		w.line("latency_percentiles_usec_"+c.full, fmt.Sprintf("p50=%.3f,p99=%.3f,p99.9=%.3f", us(0.5), us(0.99), us(0.999)))
	}
}

// infoRuntime tells what Go's runtime costs: a pause of its collector stops
// everything else for that time.
func infoRuntime(w *infoWriter) {
	var gc debug.GCStats
	debug.ReadGCStats(&gc)
	worst := time.Duration(0)
	for _, pause := range gc.Pause {
		worst = max(worst, pause)
	}
	w.line("gc_runs", gc.NumGC)
	w.line("gc_pause_total_us", gc.PauseTotal.Microseconds())
	w.line("gc_pause_max_us", worst.Microseconds()) // of those that Go remembers, 256
	w.line("goroutines", runtime.NumGoroutine())
}
