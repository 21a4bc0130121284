package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// runRedisBenchmark runs the installed redis-benchmark, unmodified, as a second
// generator. It knows no durations, so it is given a number of requests.
func runRedisBenchmark(ctx context.Context, binary, addr string, o *options, depth int, requests int64, command []string) (sample, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return sample{}, err
	}
	args := append([]string{
		"-h", host, "-p", port, "-c", strconv.Itoa(o.Conns), "-P", strconv.Itoa(depth),
		"-n", strconv.FormatInt(requests, 10), "-r", strconv.FormatInt(o.Keys, 10), "--csv",
	}, command...)
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.WaitDelay = 5 * time.Second
	var said strings.Builder
	cmd.Stderr = &said
	output, err := cmd.Output()
	if ctx.Err() != nil {
		return sample{}, ctx.Err()
	}
	if err != nil {
		return sample{}, fmt.Errorf("redis-benchmark: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return parseBenchmark(string(output))
}

var errBenchmarkOutput = errors.New("redis-benchmark printed something that is not understood")

// parseBenchmark reads the output of --csv: a line of names and one of values.
// Latencies are in ms there.
func parseBenchmark(output string) (sample, error) {
	rows, err := csv.NewReader(strings.NewReader(output)).ReadAll()
	if err != nil || len(rows) != 2 {
		return sample{}, fmt.Errorf("%w: %.200q", errBenchmarkOutput, output)
	}
	value := func(name string) (v float64) {
		for i, column := range rows[0] {
			if column == name {
				v, err = strconv.ParseFloat(rows[1][i], 64)
				return v
			}
		}
		err = errBenchmarkOutput
		return 0
	}
	var m sample
	for name, to := range map[string]*float64{"rps": &m.rate, "p50_latency_ms": &m.p50, "p99_latency_ms": &m.p99} {
		if *to = value(name); err != nil {
			return sample{}, fmt.Errorf("%w: %s: %.200q", errBenchmarkOutput, name, output)
		}
	}
	m.p50 *= 1000
	m.p99 *= 1000
	return m, nil
}
