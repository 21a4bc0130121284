package engine

import (
	"fmt"

	"github.com/stint-dev/stint/engine/internal/table"
	"github.com/stint-dev/stint/engine/limit"
)

// Apply makes effects count, that an Overlay at time now, unix ns, has encoded: it
// advances the latest time seen to now, and then writes each key. What has run out
// at now is forgotten before it is written to, so that it makes no difference
// which keyspace has swept what. Memory is taken whatever Options.MaxMemory says:
// to refuse was the overlay's.
//
// One goroutine at a time may apply; reads, sweeps and views may go on. Errors wrap
// ErrDamaged: then the keyspace has some of the effects, and must not be used.
func (ks *Keyspace) Apply(now int64, effects []byte) error {
	if now < 0 || now > limit.MaxTime {
		return errApplied(now)
	}
	ks.Advance(now)
	r := effectReader{b: effects, now: now}
	var e effect
	for {
		ok, err := r.next(&e)
		if !ok {
			return err
		}
		if e.op == effectFlush {
			ks.lockAll()
			ks.flush(int(e.db), int(e.db))
			ks.unlockAll()
			continue
		}
		hash := ks.hash(e.key)
		sh := ks.shardOf(hash)
		sh.mu.Lock()
		err = sh.apply(ks, hash, now, &e)
		sh.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// errApplied is the error for a time that no overlay has.
func errApplied(now int64) error {
	return fmt.Errorf("%w: effects of time %d: it must be within 0 and %d", ErrDamaged, now, limit.MaxTime)
}

// apply writes one key of a shard, which is locked.
func (sh *shard) apply(ks *Keyspace, hash uint64, now int64, e *effect) error {
	t := sh.tables[e.db]
	if t == nil {
		if e.op == effectDelete {
			return nil
		}
		t = ks.newTable()
		sh.tables[e.db] = t
	}
	t.Force(true)
	defer t.Force(false)
	t.SetNow(now)
	var v limit.Value
	ref := t.Get(hash, e.key, &v)
	if ref != table.NoRef && (v.Expiry() <= now || e.op == effectDelete || e.anew) {
		t.Delete(hash, ref, true)
		ref, v = table.NoRef, limit.Value{}
	}
	switch e.op {
	case effectDelete:
		return nil
	case effectLog:
		return applyLog(t, hash, ref, &v, now, e)
	}
	if e.v.Expiry() <= now {
		return fmt.Errorf("%w: a value that has run out", ErrDamaged)
	}
	return refusal(t.Put(hash, e.key, ref, &e.v))
}

// applyLog changes the sliding log v under ref, or makes one.
func applyLog(t *table.Table, hash uint64, ref table.Ref, v *limit.Value, now int64, e *effect) error {
	if ref != table.NoRef && v.Kind != limit.KindLog {
		return fmt.Errorf("%w: a change to a log where there is none", ErrDamaged)
	}
	n := v.Log.Len()
	if e.drop+e.pop > n || n-e.drop-e.pop+e.count > limit.MaxLogEntries {
		return fmt.Errorf("%w: a change to a log of %d entries that drops %d and %d", ErrDamaged, n, e.drop, e.pop)
	}
	if n-e.drop-e.pop+e.count == 0 {
		if ref != table.NoRef {
			t.Delete(hash, ref, true)
		}
		return nil
	}
	// The last that stays, and the sum of those that do.
	last, sum := int64(-1), int64(0)
	if kept := n - e.drop - e.pop; kept > 0 {
		last, _ = v.Log.At(n - e.pop - 1)
		sum = v.Log.Between(e.drop, n-e.pop)
	}
	c := limit.LogChange{Drop: e.drop, Pop: e.pop}
	r := effectReader{b: e.entries, now: now}
	for i := 0; i < max(e.count, 1); i++ {
		if i < e.count {
			c.At, c.Cost = r.near(now), r.uint()
			if c.At <= last || c.Cost > limit.MaxLogSum-sum {
				return fmt.Errorf("%w: an entry of a log", ErrDamaged)
			}
			last, sum = c.At, sum+c.Cost
		}
		if err := t.PutLog(hash, e.key, ref, e.v.Limit, c); err != nil {
			return refusal(err)
		}
		if ref == table.NoRef {
			ref = t.Find(hash, e.key)
		}
		c = limit.LogChange{}
	}
	return nil
}
