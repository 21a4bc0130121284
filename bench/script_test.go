package main

import (
	"context"
	"os/exec"
	"testing"

	"github.com/gomodule/redigo/redis"
)

// The comparison is only fair if the script that stint is compared with does
// the same work. This needs a redis-server and is quiet where there is none:
// the tests ask for nothing but Go.
func TestScriptIsATokenBucket(t *testing.T) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return
	}
	r, err := start(context.Background(), subjects()[0], &binaries{redis: binary})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	const hour = 3_600_000_000 // us
	hit := func(cost int) []int64 {
		reply, err := redis.Int64s(r.ask("EVALSHA", r.sha, 1, "k", 3, 1, hour, cost))
		if err != nil || len(reply) != 5 {
			t.Fatalf("%v, %v", reply, err)
		}
		return reply
	}
	for _, step := range []struct {
		cost                  int
		allowed, remaining    int64
		waitHours, resetHours int64 // rounded up: the steps take less than a second
	}{
		{2, 1, 1, 0, 2},
		{2, 0, 1, 1, 2},
		{1, 1, 0, 0, 3},
		{1, 0, 0, 1, 3},
		{3, 0, 0, 3, 3},
	} {
		got := hit(step.cost)
		hours := func(ms int64) int64 { return (ms + hour/1000 - 1) / (hour / 1000) }
		if got[0] != step.allowed || got[1] != 3 || got[2] != step.remaining || hours(got[3]) != step.waitHours || hours(got[4]) != step.resetHours {
			t.Fatalf("cost %d: %v, want %+v", step.cost, got, step)
		}
	}
	ttl, err := redis.Int64(r.ask("PTTL", "k"))
	if err != nil || ttl <= 2*hour/1000 || ttl > 3*hour/1000 {
		t.Fatalf("the bucket is kept for %d ms, %v", ttl, err)
	}
	// A fast rate refills: 1,000 units a second, in a bucket of one.
	for i := range 3 {
		var reply []int64
		for reply == nil || reply[0] == 0 { // each refusal takes a round trip, so it ends soon
			if reply, err = redis.Int64s(r.ask("EVALSHA", r.sha, 1, "fast", 1, 1, 1000, 1)); err != nil {
				t.Fatalf("%d: %v", i, err)
			}
		}
	}
}
