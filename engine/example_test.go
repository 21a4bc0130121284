package engine_test

import (
	"fmt"
	"time"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/limit"
)

// A program limits what it does itself, exactly, in its own memory.
func Example() {
	ks, err := engine.New(engine.Options{})
	if err != nil {
		panic(err)
	}
	// 2 requests at once, refilled at 1 in 10 seconds.
	l := limit.BucketLimit{Capacity: 2, Rate: limit.Rate{Count: 1, Period: int64(10 * time.Second)}}
	if err := l.Check(); err != nil {
		panic(err)
	}
	// A program would use time.Now().UnixNano().
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

	for range 3 {
		tx := ks.Begin(now)
		r, err := tx.Throttle([]byte("user:42"), l, 1, limit.Consume)
		tx.End()
		if err != nil {
			panic(err)
		}
		fmt.Println(r.Allowed == 1, r.Remaining, time.Duration(r.WaitMs)*time.Millisecond)
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 10s
}

// A worker takes as many units as there are, and gives back what it does not
// use.
func ExampleTx_Refund() {
	ks, _ := engine.New(engine.Options{})
	l := limit.BucketLimit{Capacity: 100, Rate: limit.Rate{Count: 1, Period: int64(time.Second)}}
	tx := ks.Begin(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	defer tx.End()

	r, _ := tx.Throttle([]byte("tokens"), l, 250, limit.AtMost)
	fmt.Println("granted", r.Allowed, "left", r.Remaining)
	r, _ = tx.Refund([]byte("tokens"), 40)
	fmt.Println("left", r.Remaining)
	// Output:
	// granted 100 left 0
	// left 40
}

// A sliding log admits a number of requests in any stretch of time as long as
// the period.
func ExampleTx_Window() {
	ks, _ := engine.New(engine.Options{})
	l := limit.WindowLimit{Limit: 3, Period: int64(time.Minute)}
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, second := range []int{0, 1, 2, 3, 60} {
		tx := ks.Begin(noon.Add(time.Duration(second) * time.Second).UnixNano())
		r, _ := tx.Window(limit.KindLog, []byte("k"), l, 1, limit.Consume)
		tx.End()
		fmt.Println(second, r.Allowed, r.Remaining, r.WaitMs)
	}
	// Output:
	// 0 1 2 0
	// 1 1 1 0
	// 2 1 0 0
	// 3 0 0 57000
	// 60 1 0 0
}

// The changes since the last cut go to a file, or here to another keyspace.
func ExampleKeyspace_Cut() {
	ks, _ := engine.New(engine.Options{Track: true})
	l := limit.WindowLimit{Limit: 10, Period: int64(time.Hour)}
	now := time.Date(2030, 1, 1, 12, 30, 0, 0, time.UTC).UnixNano()
	tx := ks.Begin(now)
	_, _ = tx.Window(limit.KindFixed, []byte("k"), l, 7, limit.Consume)
	tx.End()

	other, _ := engine.New(engine.Options{Track: true})
	cut := ks.Cut()
	other.Advance(cut.Latest())
	for more := true; more; {
		var chunk []byte
		chunk, more = cut.Append(nil, 64<<10)
		if err := other.Load(chunk); err != nil {
			panic(err)
		}
	}
	tx = other.Begin(now)
	defer tx.End()
	info, ok := tx.Inspect([]byte("k"))
	fmt.Println(ok, info.Kind, info.Used, info.Remaining, info.ResetMs)
	// Output:
	// true fixed 7 3 1800000
}
