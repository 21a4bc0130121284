package server

import (
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "7": 7, "7b": 7, " 64 KiB ": 64 << 10, "512MiB": 512 << 20, "2gib": 2 << 30, "1TiB": 1 << 40,
		"1kb": 1000, "1MB": 1e6, "1GB": 1e9, "2tb": 2e12, "1k": 1000, "3M": 3e6, "2G": 2e9, "1t": 1e12,
		"1.5GiB": 3 << 29, "0.5k": 500, "1.0MiB": 1 << 20, "0.000001TiB": 1099511, "1.999999TB": 1999999000000, "0.0001k": 0,
		"9223372036854775807": 1<<63 - 1, "8388607.5TiB": 1<<63 - 1<<39,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "-1", "+1", "-5MiB", "MiB", "1XB", "1.5", "1.5B", "1.GiB", ".5GiB", "1.1234567GiB", "1.-5GiB", "1.5.5GiB", "1e3", "0x10", "1 2", "1_0",
		"9223372036854775808", "8388608TiB", "9223372036854775.9k",
	} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q is taken as %d", text, got)
		}
	}
	for text, want := range map[string]int64{"1kb": 1 << 10, "100MB": 100 << 20, "1.5gb": 3 << 29, "1TB": 1e12, "1k": 1000, "1MiB": 1 << 20} {
		if got, err := parseSize(text, redisUnits); err != nil || got != want {
			t.Errorf("in CONFIG, %q is %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "30": 30 * time.Second, " 250ms ": 250 * time.Millisecond, "1h30m": 90 * time.Minute, "4294967295": 4294967295 * time.Second} {
		got, err := ParseDuration(text)
		if err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
		if again, err := ParseDuration(formatSeconds(got)); err != nil || again != got {
			t.Errorf("%v is written %q, which reads as %v, %v", got, formatSeconds(got), again, err)
		}
	}
	for _, text := range []string{"", "-1", "-1s", "+1s", "1x", "1d", "s", "4294967296"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is taken as %v", text, got)
		}
	}
}
