//go:build unix

package cluster

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// The load is so many clients, each with a call every pace at most.
const (
	clients = 8
	pace    = 4 * time.Millisecond
)

// loadTime is how long each scenario is under load, from the environment.
func loadTime(t *testing.T) time.Duration {
	text := os.Getenv("STINT_TEST_CLUSTER_SECONDS")
	if text == "" {
		return defaultLoad
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n <= 0 {
		t.Fatalf("STINT_TEST_CLUSTER_SECONDS is %q: want a number of seconds", text)
	}
	return time.Duration(n * float64(time.Second))
}

// between is a random time.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// until repeats what is done until the time is over.
func until(d time.Duration, do func()) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		do()
	}
}

// during is how long a fault lasts.
func during(d time.Duration) { <-time.After(d) }
