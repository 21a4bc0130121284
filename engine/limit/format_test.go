package limit

import (
	"testing"

	"pgregory.net/rapid"
)

func TestPeriodsAndRatesAreWrittenInTheLongestUnit(t *testing.T) {
	for ns, want := range map[int64]string{
		1: "1ns", 1_500_000: "1500000ns", 1_000_000: "1ms", 250_000_000: "250ms", 1_000_000_000: "1s", 90_000_000_000: "90s",
		60_000_000_000: "1m", 3600_000_000_000: "1h", 86_400_000_000_000: "1d", 7 * 86_400_000_000_000: "1w", 8 * 86_400_000_000_000: "8d",
	} {
		if got := PeriodString(ns); got != want {
			t.Errorf("%d ns is %s, want %s", ns, got, want)
		}
	}
	for ns, want := range map[int64]string{
		60_000_000_000: "5/m", 1_000_000: "5/ms", 1_000_000_000: "5/s", 1: "5/ns", 7 * 86_400_000_000_000: "5/w",
		10_000_000_000: "5/10s", 120_000_000_000: "5/2m", 19 * 60_000_000_000: "5/19m", 101_000_000: "5/101ms",
	} {
		if got := (Rate{Count: 5, Period: ns}).String(); got != want {
			t.Errorf("5 in %d ns is %s, want %s", ns, got, want)
		}
	}
}

// TestWrittenPeriodsAndRatesReadBack fails when INSPECT shows a limit that
// cannot be given again.
func TestWrittenPeriodsAndRatesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(1, MaxPeriod/1_000_000).Draw(t, "ms")
		if back, ok := ParsePeriod([]byte(PeriodString(ms * 1_000_000))); !ok || back != ms*1_000_000 {
			t.Fatalf("%s reads back as %d, %v", PeriodString(ms*1_000_000), back, ok)
		}
		r := Rate{Count: rapid.Int64Range(1, MaxUnits).Draw(t, "count"), Period: ms * 1_000_000}
		if back, ok := ParseRate([]byte(r.String())); !ok || back != r {
			t.Fatalf("%s reads back as %+v, %v", r, back, ok)
		}
	})
}
