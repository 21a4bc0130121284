package command

import (
	"fmt"
	"strings"
	"time"
)

// advice is what LATENCY DOCTOR says of an event: what it is, and what can be
// done.
var advice = map[string]struct{ what, do string }{
	"command": {
		"a command, or the commands of one client that arrived together",
		"SLOWLOG GET tells which. Large pipelines take long as a whole: their clients can send fewer commands at a time. " +
			"SAVE takes as long as the disk does, and delays nobody but its own client. " +
			"If pauses of the process are listed as well, the machine is too busy and the command is not at fault.",
	},
	"flush": {
		"writing changed keys to the state file",
		"decisions do not wait for it, but a crash loses what was decided since the flush before. " +
			"Compare flush_last_bytes and flush_last_duration_us of INFO: few bytes in a long time is a slow or shared disk.",
	},
	"sweep": {
		"a step of forgetting keys that have run out",
		"it is short by design: this is a processor that is taken away, or memory that is being swapped. Look at both, and at the limits of the container.",
	},
	"pause": {
		"the whole process did not run",
		"the machine has too little processor time for it: look for other programs, for CPU limits of the container (cpu.stat, nr_throttled), " +
			"for steal time of a virtual machine, for swapping, or for a machine that was suspended.",
	},
}

// doctor is the text of LATENCY DOCTOR.
func doctor(s *Server) string {
	var b strings.Builder
	threshold := s.LatencyThreshold()
	events := s.spikes.list()
	if threshold == 0 {
		b.WriteString("Nothing is watched: latency-monitor-threshold is 0. CONFIG SET latency-monitor-threshold 100 notes what takes 100 ms or longer, at no cost that could be measured.\n")
	}
	if len(events) == 0 {
		if threshold > 0 {
			fmt.Fprintf(&b, "All is well: nothing took %d ms or longer since the start or the last LATENCY RESET.\n", threshold)
		}
		return b.String()
	}
	now := s.now().Unix()
	for i, e := range events {
		sum := int64(0)
		for _, sample := range e.samples {
			sum += sample.ms
		}
		n := int64(len(e.samples))
		first, last := e.samples[0].unix, e.samples[n-1].unix
		ago := func(unix int64) time.Duration { return time.Duration(max(now-unix, 0)) * time.Second }
		a := advice[e.name]
		fmt.Fprintf(&b, "%d. %s: %s. It took long in %d %s since %v ago, the last time %v ago: %d ms on average, %d ms at worst.\n   What to do: %s\n",
			i+1, e.name, a.what, n, plural(n, "second"), ago(first), ago(last), sum/n, e.worst, a.do)
	}
	return b.String()
}

// plural is word for n of it.
func plural(n int64, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
