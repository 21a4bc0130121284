package limit

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func (w wide) big() *big.Int {
	x := new(big.Int).SetUint64(w.hi)
	return x.Add(x.Lsh(x, 64), new(big.Int).SetUint64(w.lo))
}

// TestWideEqualsBig fails when 128-bit arithmetic differs from big numbers.
func TestWideEqualsBig(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.OneOf(rapid.Uint64(), rapid.Uint64Max(9), rapid.SampledFrom([]uint64{1<<64 - 1, 1 << 63, 1<<63 - 1, 1 << 53}))
		// Sums must stay below 2^128, as all sums of this package do.
		w := wide{word.Draw(t, "hi") >> 1, word.Draw(t, "lo")}
		v := wide{word.Draw(t, "hi") >> 1, word.Draw(t, "lo")}
		d := around(1, 1<<63-1, 1<<53, second).Draw(t, "d")
		if got, want := w.plus(v).big(), new(big.Int).Add(w.big(), v.big()); got.Cmp(want) != 0 {
			t.Fatalf("%v + %v = %v", w.big(), v.big(), got)
		}
		want := new(big.Int).Sub(w.big(), v.big())
		if want.Sign() < 0 {
			want.SetInt64(0)
		}
		if got := w.minus(v).big(); got.Cmp(want) != 0 {
			t.Fatalf("%v − %v = %v", w.big(), v.big(), got)
		}
		if w.more(v) != (w.big().Cmp(v.big()) > 0) {
			t.Fatalf("%v > %v is %v", w.big(), v.big(), w.more(v))
		}
		q, r := w.div(d)
		wantQ, wantR := new(big.Int).DivMod(w.big(), big.NewInt(d), new(big.Int))
		if q.big().Cmp(wantQ) != 0 || r != wantR.Int64() {
			t.Fatalf("%v / %d = %v rest %d", w.big(), d, q.big(), r)
		}
		// Quotients in an int64 saturate where they would not fit.
		gotQ, gotR := w.quo(d)
		up := w.ceil(d)
		switch {
		case wantQ.Cmp(big.NewInt(most)) > 0:
			if gotQ != most || gotR != 0 || up != most {
				t.Fatalf("%v / %d = %d rest %d, up %d", w.big(), d, gotQ, gotR, up)
			}
		default:
			wantUp := wantQ.Int64()
			if wantR.Sign() > 0 {
				wantUp++
			}
			if gotQ != wantQ.Int64() || gotR != wantR.Int64() || up != wantUp {
				t.Fatalf("%v / %d = %d rest %d, up %d", w.big(), d, gotQ, gotR, up)
			}
		}
	})
}
