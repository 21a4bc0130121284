package main

import (
	"fmt"
	"os"
	"strings"
)

// Measures of the chart, in its own units, which are pixels at full size.
const (
	chartWidth  = 760
	chartLabel  = 190 // where bars begin
	chartBar    = 430 // length of the longest
	barHeight   = 14
	barStep     = 18
	groupGap    = 10
	panelHead   = 54
	chartMargin = 16
)

// chartStyle has the colours for both themes: a page that embeds the picture
// tells it by the browser's setting which one to show.
const chartStyle = `text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#24292f}
.h{font-size:14px;font-weight:600}.n{fill:#57606a}.v{font-variant-numeric:tabular-nums}
.s{fill:#0969da}.l{fill:#8c959f}.i{fill:#bf8700}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.n{fill:#9198a1}.s{fill:#4493f8}.l{fill:#6e7681}.i{fill:#d29922}}
`

// chartSubjects are the bars of a group, from top to bottom.
var chartSubjects = []struct{ name, title, class string }{
	{stintNone, "stint, a decision", "s"},
	{redisLua, "Redis, a decision in Lua", "l"},
	{redisIncr, "Redis, INCR alone", "i"},
}

// hasChart tells whether all that the chart shows was measured.
func (r *record) hasChart() bool {
	for _, g := range wireGoals {
		for _, s := range chartSubjects {
			if len(r.get(wireName(redisBenchmark, s.name, g.depth), "rate")) == 0 {
				return false
			}
		}
	}
	return true
}

// chart draws throughput and server CPU by redis-benchmark as SVG. The same
// record gives the same bytes; source is the name of its file.
func chart(r *record, source string) string {
	var b strings.Builder
	y := chartMargin
	panel := func(title, note, name string, show func(float64) string) {
		fmt.Fprintf(&b, `<text class="h" x="%d" y="%d">%s</text><text class="n" x="%d" y="%d">%s</text>`+"\n", chartMargin, y+14, title, chartMargin, y+32, note)
		y += panelHead - 10
		for _, g := range wireGoals {
			what := fmt.Sprintf("%d in flight", g.depth)
			if g.depth == 1 {
				what = "one by one"
			}
			fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", chartMargin, y+barHeight+barStep-3, what)
			fmt.Fprintf(&b, `<text class="n" x="%d" y="%d">-P %d</text>`+"\n", chartMargin+82, y+barHeight+barStep-3, g.depth)
			most := 1e-9
			for _, s := range chartSubjects {
				most = max(most, r.median(wireName(redisBenchmark, s.name, g.depth), name))
			}
			for _, s := range chartSubjects {
				v := r.median(wireName(redisBenchmark, s.name, g.depth), name)
				width := max(chartBar*v/most, 1)
				fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`, s.class, chartLabel, y, width, barHeight)
				fmt.Fprintf(&b, `<text class="v" x="%.1f" y="%d">%s</text>`+"\n", chartLabel+width+6, y+barHeight-3, show(v))
				y += barStep
			}
			y += groupGap
		}
		y += groupGap
	}
	panel("Requests a second", "more is better; each group to its own scale", "rate", func(v float64) string {
		if v >= 1e6 {
			return fmt.Sprintf("%.2f M", v/1e6)
		}
		return fmt.Sprintf("%.0f k", v/1e3)
	})
	panel("Server CPU a request", "microseconds, less is better; each group to its own scale", "cpu", func(v float64) string { return fmt.Sprintf("%.2f µs", v) })
	x := chartMargin
	for _, s := range chartSubjects {
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="12" height="12" rx="2"/><text x="%d" y="%d">%s</text>`+"\n", s.class, x, y, x+18, y+11, s.title)
		x += 36 + 7*len(s.title)
	}
	y += 34
	fmt.Fprintf(&b, `<text class="n" x="%d" y="%d">redis-benchmark -c %d, medians of %d rounds, %d cores shared with it; %s, %s</text>`+"\n",
		chartMargin, y, r.Settings.Conns, r.Settings.Rounds, r.Machine.Cores, escape(redisVersion(r.Machine.Redis)), escape(source))
	y += chartMargin
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="Throughput and server CPU of stint beside Redis">`+"\n<style>%s</style>\n", chartWidth, y, chartWidth, y, chartStyle) +
		b.String() + "</svg>\n"
}

// redisVersion is "Redis 7.0.15" of what redis-server --version says.
func redisVersion(line string) string {
	for word := range strings.FieldsSeq(line) {
		if version, ok := strings.CutPrefix(word, "v="); ok {
			return "Redis " + version
		}
	}
	return "Redis"
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

func writeChart(r *record, source, path string) error {
	if err := os.WriteFile(path, []byte(chart(r, source)), 0o644); err != nil {
		return fmt.Errorf("the chart cannot be written: %w", err)
	}
	return nil
}
