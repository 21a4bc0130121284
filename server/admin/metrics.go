package admin

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gauge and counter are the two types of a metric.
const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

// sample is one value of a metric, with the values of its labels.
type sample struct {
	value  float64
	labels []string
}

// metric describes one metric that is read from a T: its name without stint_,
// what it means, its type and labels, and how it is read. Metrics are data, so
// that one loop serves all and the document can be compared with them.
type metric[T any] struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	read       func(*T) []sample
}

// one reads a metric without labels.
func one[T any, N int | int64 | uint64 | float64](read func(*T) N) func(*T) []sample {
	return func(t *T) []sample { return []sample{{value: float64(read(t))}} }
}

// seconds reads a span of time.
func seconds[T any](read func(*T) time.Duration) func(*T) []sample {
	return one(func(t *T) float64 { return read(t).Seconds() })
}

// unix is a time as Prometheus takes it, 0 for none.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1e3
}

// truth is 1 or 0.
func truth(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

// oneHot is 1 for the name that is now, 0 for each other of the known ones. An
// unknown name has a sample of its own; an empty one stands for none of them.
func oneHot(now string, known []string) []sample {
	names := known
	if now != "" && !slices.Contains(known, now) {
		names = append(slices.Clone(known), now)
	}
	out := make([]sample, len(names))
	for i, name := range names {
		out[i] = sample{truth(name == now), []string{name}}
	}
	return out
}

// family is a metric with its description, bound to where it is read from.
type family[T any] struct {
	metric[T]
	desc *prometheus.Desc
}

// families makes the descriptions.
func families[T any](metrics []metric[T]) []family[T] {
	out := make([]family[T], len(metrics))
	for i, m := range metrics {
		out[i] = family[T]{m, prometheus.NewDesc(prefix+m.name, m.help, m.labels, nil)}
	}
	return out
}

// emit reads all families from t.
func emit[T any](ch chan<- prometheus.Metric, all []family[T], t *T) {
	for _, f := range all {
		for _, s := range f.read(t) {
			m, err := prometheus.NewConstMetric(f.desc, f.kind, s.value, s.labels...)
			if err != nil {
				m = prometheus.NewInvalidMetric(f.desc, err)
			}
			ch <- m
		}
	}
}

// prefix begins the names of all metrics that are ours.
const prefix = "stint_"

// collector reads a Source whenever Prometheus asks.
type collector struct {
	source Source

	ready    *prometheus.Desc
	duration *prometheus.Desc
	node     []family[Stats]
	flush    []family[Stats]
	tls      []family[Stats]
	cluster  []family[ClusterStats]
}

func newCollector(source Source) *collector {
	return &collector{
		source: source,
		ready: prometheus.NewDesc(prefix+"ready",
			"Whether decisions can be made through this node, as /readyz says.", nil, nil),
		duration: prometheus.NewDesc(prefix+"command_duration_seconds",
			"How long commands took, each with its share of the batch it ran in.", []string{"command"}, nil),
		node:    families(nodeMetrics),
		flush:   families(flushMetrics),
		tls:     families(tlsMetrics),
		cluster: families(clusterMetrics),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.ready
	ch <- c.duration
	for _, all := range [][]family[Stats]{c.node, c.flush, c.tls} {
		for _, f := range all {
			ch <- f.desc
		}
	}
	for _, f := range c.cluster {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector. What a node has not, such as a
// cluster, has no metrics.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(c.ready, gauge, truth(readiness(c.source) == ""))
	s := c.source.Stats()
	emit(ch, c.node, &s)
	if s.Persist != nil {
		emit(ch, c.flush, &s)
	}
	if s.TLS != nil {
		emit(ch, c.tls, &s)
	}
	for _, cmd := range s.PerCommand {
		if cmd.Calls > 0 {
			ch <- durations(c.duration, cmd)
		}
	}
	if cluster := c.source.Cluster(); cluster != nil {
		emit(ch, c.cluster, cluster)
	}
}

// durationBounds are the borders of the histograms: powers of four, of 1,024 ns
// as the server counts them, from 1 µs to 4.3 s. More of them would be more
// series for each command.
var durationBounds = func() (bounds []time.Duration) {
	for k := 10; k <= 32; k += 2 {
		bounds = append(bounds, time.Duration(1)<<k)
	}
	return bounds
}()

// durations is the histogram of one command. CommandStats leaves out times that
// no call took, so a border has the count of the longest time not beyond it.
func durations(desc *prometheus.Desc, cmd CommandStats) prometheus.Metric {
	buckets := make(map[float64]uint64, len(durationBounds))
	within, next := int64(0), 0
	for _, bound := range durationBounds {
		for ; next < len(cmd.Times) && cmd.Times[next].Time <= bound; next++ {
			within = cmd.Times[next].Calls
		}
		buckets[bound.Seconds()] = uint64(max(within, 0))
	}
	m, err := prometheus.NewConstHistogram(desc, uint64(cmd.Calls), cmd.Time.Seconds(), buckets, cmd.Name)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return m
}

// maxWord is the longest first word of an error that has a series of its own.
const maxWord = 24

// errorWords counts errors by their first word. Whatever is none of ours by its
// looks counts as other: a label must never have what a client sent.
func errorWords(list []ErrorCount) []sample {
	sums := map[string]int64{}
	for _, e := range list {
		word := e.Word
		if word == "" || len(word) > maxWord || strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			word = "other"
		}
		sums[word] += e.Count
	}
	var out []sample
	for _, word := range slices.Sorted(maps.Keys(sums)) {
		out = append(out, sample{float64(sums[word]), []string{word}})
	}
	return out
}
