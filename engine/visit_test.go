package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stint-dev/stint/engine/limit"
)

// TestVisitEffectsShowsEachKeyOnce pins which effects a batch has, and their order.
func TestVisitEffectsShowsEachKeyOnce(t *testing.T) {
	ks := newKeyspace(t, Options{})
	o := ks.NewOverlay()
	const now = int64(1e18)
	l := limit.BucketLimit{Capacity: 10, Rate: rate(t, "1/s")}
	w := limit.WindowLimit{Limit: 10, Period: 1e9}
	do := func(_ limit.Result, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tx := o.Begin(now - 1000)
	do(tx.Window(limit.KindLog, []byte("log"), w, 4, limit.Consume))
	do(tx.Throttle([]byte("gone"), l, 1, limit.Consume))
	if err := ks.Apply(now-1000, o.Append(nil)); err != nil {
		t.Fatal(err)
	}

	tx = o.Begin(now)
	do(tx.Throttle([]byte("lost"), l, 1, limit.Consume))
	tx.Select(5)
	do(tx.Throttle([]byte("lost too"), l, 1, limit.Consume))
	tx.FlushDB()
	for range 1000 {
		do(tx.Throttle([]byte("hot"), l, 1, limit.AtMost))
	}
	tx.Select(0)
	do(tx.Refund([]byte("log"), 1))
	do(tx.Window(limit.KindLog, []byte("log"), w, 2, limit.Consume))
	do(tx.Window(limit.KindFixed, []byte("fixed"), w, 2, limit.Consume))
	tx.Delete([]byte("gone"))
	tx.Delete([]byte("lost"))
	do(tx.Window(limit.KindLog, []byte("gone"), w, 2, limit.Consume))
	do(tx.Window(limit.KindFixed, []byte("fixed"), w, 20, limit.Consume)) // refused

	var got []string
	show := func(e *Effect) error {
		s := fmt.Sprintf("%d %d %q", e.Op, e.DB, e.Key)
		if e.Op == OpPut {
			s += fmt.Sprintf(" %s %v %v %d", e.Value.Kind, e.Value.W, e.Value.Limit, e.Added)
		}
		if e.Anew || e.Drop+e.Pop > 0 {
			s += fmt.Sprint(" anew ", e.Anew, " drop ", e.Drop, " pop ", e.Pop)
		}
		got = append(got, s)
		return nil
	}
	effects := o.Append(nil)
	if err := VisitEffects(now, effects, show); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`3 5 ""`,
		`2 0 "lost"`,
		fmt.Sprintf(`1 5 "hot" bucket [%d 0 0] {10 1 1000000000} 0`, now+10e9),
		`1 0 "log" log [0 0 0] {10 0 1000000000} 2 anew false drop 1 pop 0`,
		fmt.Sprintf(`1 0 "fixed" fixed [%d 2 0] {10 0 1000000000} 0`, now),
		`1 0 "gone" log [0 0 0] {10 0 1000000000} 1 anew true drop 0 pop 0`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the effects are\n%q\nwant\n%q", got, want)
	}

	stop := errors.New("stop")
	if err := VisitEffects(now, effects, func(*Effect) error { return stop }); err != stop {
		t.Errorf("the visitor's error became %v", err)
	}
	nothing := func(*Effect) error { return nil }
	for _, at := range []int64{-1, limit.MaxTime + 1} {
		if err := VisitEffects(at, nil, nothing); !errors.Is(err, ErrDamaged) {
			t.Errorf("time %d: visited, error %v", at, err)
		}
		if err := ks.Apply(at, nil); !errors.Is(err, ErrDamaged) || ks.Latest() != now-1000 {
			t.Errorf("time %d: applied, error %v, latest %d", at, err, ks.Latest())
		}
	}
}
