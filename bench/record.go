package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/bench/internal/load"
)

// record is everything a run found out. It is stored as JSON beside the report,
// and the report, the goals and the chart are made from it alone.
type record struct {
	Date     time.Time            `json:"date"`
	Command  []string             `json:"command"`
	Short    bool                 `json:"short,omitempty"`
	Machine  machine              `json:"machine"`
	Settings settings             `json:"settings"`
	Figures  map[string][]float64 `json:"figures"` // by figure(…); a value a round
}

// settings are the options that a reader must know.
type settings struct {
	Rounds      int           `json:"rounds"`
	Duration    time.Duration `json:"duration_ns"` // of a measurement
	Conns       int           `json:"connections"`
	Pipelines   []int         `json:"pipelines"`
	Keys        int64         `json:"keys"`
	EngineKeys  int           `json:"engine_keys"`
	MemoryKeys  []int64       `json:"memory_keys"`
	ManyKeys    int64         `json:"many_keys"`  // the large table of latency and restart
	DrainKeys   int64         `json:"drain_keys"` // changed in one drain
	IdleConns   int           `json:"idle_connections"`
	Zipf        float64       `json:"zipf"`
	Refusals    []int         `json:"refusals_percent"`
	ServerFlags []string      `json:"server_flags,omitempty"`
}

// figure names a figure by its part and what tells it from the others there,
// from the general to the special: wire/redis-benchmark/stint-none/P16/cpu.
func figure(parts ...any) string {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = fmt.Sprint(p)
	}
	return strings.Join(names, "/")
}

func depthName(pipeline int) string { return "P" + strconv.Itoa(pipeline) }

// add puts one round's value to a figure.
func (r *record) add(name string, value float64) {
	if r.Figures == nil {
		r.Figures = map[string][]float64{}
	}
	r.Figures[name] = append(r.Figures[name], value)
}

// addLatency puts one run's percentiles, in us, under a name.
func (r *record) addLatency(name string, l *load.Result) {
	for _, p := range percentiles {
		r.add(figure(name, p.name), micros(l.Latency(p.of)))
	}
}

var percentiles = []struct {
	name, title string
	of          float64
}{{"p50", "p50", 50}, {"p99", "p99", 99}, {"p999", "p99.9", 99.9}, {"max", "longest", 100}}

func (r *record) get(parts ...any) []float64 { return r.Figures[figure(parts...)] }

// median is 0 where nothing was measured.
func (r *record) median(parts ...any) float64 { return spreadOf(r.get(parts...)).median }

// show is a figure as a cell of a table, a dash where nothing was measured.
func (r *record) show(format string, parts ...any) string {
	values := r.get(parts...)
	if len(values) == 0 {
		return "–"
	}
	return spreadOf(values).show(format)
}

// ratio divides two figures round by round.
func (r *record) ratio(above, below string) []float64 {
	return ratios(r.Figures[above], r.Figures[below])
}

// ratioCell is the median of a ratio as a cell of a table.
func (r *record) ratioCell(above, below string) string {
	list := r.ratio(above, below)
	if len(list) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", spreadOf(list).median)
}

// store writes the report and the record as folder/date-name.md and .json,
// with a number behind if there are such already: results are never
// overwritten. It returns the path of the JSON.
func (r *record) store(folder, name, report string) (string, error) {
	data, err := json.MarshalIndent(r, "", " ")
	if err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("the result cannot be stored: %w", err)
	}
	for n := 1; ; n++ {
		stem := filepath.Join(folder, r.Date.Format(time.DateOnly)+"-"+name)
		if n > 1 {
			stem += "-" + strconv.Itoa(n)
		}
		if _, err := os.Stat(stem + ".json"); err == nil {
			continue // whose report somebody moved away
		}
		err := writeNew(stem+".md", report)
		if os.IsExist(err) {
			continue
		}
		if err == nil {
			err = writeNew(stem+".json", string(data)+"\n")
		}
		if err != nil {
			return "", fmt.Errorf("the result cannot be stored: %w", err)
		}
		return stem + ".json", nil
	}
}

// writeNew writes a file that must not be there yet.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func loadRecord(path string) (*record, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("no result: %w", err)
	}
	r := &record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s is no result of this program: %w", path, err)
	}
	if len(r.Figures) == 0 {
		return nil, fmt.Errorf("%s is no result of this program: it has no figures", path)
	}
	return r, nil
}

// newest is the latest result in a folder that is not of a short run, by the
// date within: git keeps no times of files.
func newest(folder string) (path string, r *record, err error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return "", nil, fmt.Errorf("no results: %w", err)
	}
	for _, p := range paths {
		next, err := loadRecord(p)
		if err != nil {
			return "", nil, err
		}
		if !next.Short && (r == nil || next.Date.After(r.Date)) {
			path, r = p, next
		}
	}
	if r == nil {
		return "", nil, fmt.Errorf("%s has no result as .json: `make bench` makes one", folder)
	}
	return path, r, nil
}
