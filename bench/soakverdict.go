package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/stint-dev/stint/bench/internal/proc"
)

// minSamples is the least number of samples that a slope is taken from twice
// over.
const minSamples = 6

// A soak's memory is flat if a line through the second half of the samples
// rises by no more than flatShare of the mean, or by flatBytes, from the
// middle to the end.
const (
	flatShare = 0.03
	flatBytes = 4 << 20
)

// spareGoroutines is how many more goroutines there may be after the load than
// before it: a flush may be running in the one sample and not in the other.
const spareGoroutines = 2

// spareFiles is the same for open files: the connection of the sample before
// may be closing, and what is opened when it is first needed stays.
const spareFiles = 4

// errSoak ends a soak with a bad verdict, which has been printed.
var errSoak = errors.New("the soak found a fault")

// soakSample is what one look at the server shows. Sizes are bytes.
type soakSample struct {
	at         time.Duration // since the beginning of the load
	resident   float64
	used       float64 // tables of keys
	heap       float64 // Go objects
	goroutines float64
	files      int
	clients    float64
	commands   float64 // since the server's start
	flush      float64 // duration of the last one, us
	rate       float64 // commands per second since the sample before
}

// rest is what must be before and after the load alike.
func (s soakSample) rest() string {
	return fmt.Sprintf("%.0f goroutines, %d files, %.0f clients, %.1f MB resident", s.goroutines, s.files, s.clients, s.resident/1e6)
}

// sample looks at the server, by one connection of its own.
func (s *soak) sample(at time.Duration) (soakSample, error) {
	r := soakSample{at: at}
	resident, err := proc.Resident(s.server.Pid())
	if err != nil {
		return r, err
	}
	if r.files, err = proc.Files(s.server.Pid()); err != nil {
		return r, err
	}
	text, err := redis.String(s.server.ask("INFO"))
	if err != nil {
		return r, fmt.Errorf("INFO: %w", err)
	}
	r.resident = float64(resident)
	for name, to := range map[string]*float64{
		"used_memory": &r.used, "used_memory_heap": &r.heap, "goroutines": &r.goroutines, "connected_clients": &r.clients,
		"total_commands_processed": &r.commands, "flush_last_duration_us": &r.flush,
	} {
		if *to, err = strconv.ParseFloat(fieldOf(text, name, ""), 64); err != nil {
			return r, fmt.Errorf("INFO has no number %s", name)
		}
	}
	return r, nil
}

// slope is how much y rises for each unit of x by the straight line through
// the points that leaves the least squares.
func slope(x, y []float64) float64 {
	mx, my := mean(x), mean(y)
	above, below := 0.0, 0.0
	for i := range x {
		above += (x[i] - mx) * (y[i] - my)
		below += (x[i] - mx) * (x[i] - mx)
	}
	if below == 0 {
		return 0
	}
	return above / below
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(len(values), 1))
}

// growth is how much a figure rises over the second half of the samples by
// that line, and whether that is flat.
func growth(samples []soakSample, of func(soakSample) float64) (rise, average float64, flat bool) {
	half := samples[len(samples)/2:]
	var x, y []float64
	for _, s := range half {
		x, y = append(x, s.at.Seconds()), append(y, of(s))
	}
	rise, average = slope(x, y)*(x[len(x)-1]-x[0]), mean(y)
	return rise, average, rise <= max(flatShare*average, flatBytes)
}

// judge prints a line a verdict and returns errSoak if one is bad.
func judge(out io.Writer, samples []soakSample, before, after soakSample, failures, connections int64, troubles map[string]float64) error {
	if len(samples) < minSamples {
		return fmt.Errorf("%d samples are too few for a verdict: want %d", len(samples), minSamples)
	}
	bad := false
	say := func(good bool, format string, args ...any) {
		word := "good"
		if !good {
			word, bad = "BAD ", true
		}
		fmt.Fprintf(out, "%s  %s\n", word, fmt.Sprintf(format, args...))
	}
	for _, m := range []struct {
		name string
		of   func(soakSample) float64
	}{
		{"resident set", func(s soakSample) float64 { return s.resident }},
		{"tables of keys", func(s soakSample) float64 { return s.used }},
	} {
		rise, average, flat := growth(samples, m.of)
		say(flat, "memory: %s rose by %+.2f MB (%+.1f %%) over the second half, mean %.1f MB", m.name, rise/1e6, 100*rise/max(average, 1), average/1e6)
	}
	say(failures == 0, "errors: %d of the clients", failures)
	none := true
	for _, v := range troubles {
		none = none && v == 0
	}
	say(none, "troubles the server counted: %s", listOf(troubles))
	say(after.goroutines <= before.goroutines+spareGoroutines, "goroutines: %.0f before the load, %.0f after it", before.goroutines, after.goroutines)
	say(after.files <= before.files+spareFiles, "files: %d before the load, %d after it, with %d connections that came and went", before.files, after.files, connections)
	var rates []float64
	for _, s := range samples {
		rates = append(rates, s.rate)
	}
	fmt.Fprintf(out, "      throughput: %.0f commands/s on average, %.0f in the slowest sample, %.3g commands in all\n",
		mean(rates), slices.Min(rates), samples[len(samples)-1].commands)
	if bad {
		return errSoak
	}
	return nil
}
