package limit

// request is one decision or refund as the tests make them.
type request struct {
	kind   Kind
	limit  Params
	cost   int64
	mode   Mode
	refund bool
}

// space keeps values under keys the way an engine does, in the simplest form:
// it converts when the limit differs, forgets what is as new, and clamps the
// time.
type space struct {
	values map[string]*Value
	latest int64
}

func newSpace() *space { return &space{values: map[string]*Value{}} }

// get is the value under key at time at, nil if there is none or it is as new.
func (s *space) get(key string, at int64) *Value {
	v := s.values[key]
	if v != nil && v.Expiry() <= max(at, s.latest) {
		delete(s.values, key)
		return nil
	}
	return v
}

// do is the answer to r, and false where the key is of another kind.
func (s *space) do(key string, r request, at int64) (Result, bool) {
	v := s.get(key, at)
	s.latest = max(s.latest, at)
	now := s.latest
	if r.refund {
		if v == nil {
			return Result{Allowed: 1}, true
		}
		return refund(v, r.cost, now), true
	}
	if v == nil {
		v = &Value{Kind: r.kind, Limit: r.limit}
		if r.kind == KindLog {
			v.Log = new(Log)
		}
	}
	if v.Kind != r.kind {
		return Result{}, false
	}
	res := decide(v, r, now)
	if err := v.Valid(); err != nil {
		panic(err)
	}
	s.values[key] = v
	return res, true
}

// decide decides r on v, which it changes.
func decide(v *Value, r request, now int64) Result {
	changes := r.cost > 0 && r.mode != Peek
	var res Result
	next := *v
	next.Limit = r.limit
	switch v.Kind {
	case KindBucket, KindLeak:
		l := BucketLimitOf(r.limit)
		b, _ := l.Convert(v.Bucket(), BucketLimitOf(v.Limit), now)
		if v.Kind == KindBucket {
			b, res = l.Decide(b, r.cost, r.mode, now)
		} else {
			b, res = l.DecideLeak(b, r.cost, r.mode, now)
		}
		next.SetBucket(b)
	case KindFixed:
		l := WindowLimitOf(r.limit)
		w := l.ConvertFixed(v.Fixed(), WindowLimitOf(v.Limit), now)
		w, res = l.DecideFixed(w, r.cost, r.mode, now)
		next.SetFixed(w)
	case KindSliding:
		l := WindowLimitOf(r.limit)
		w, _ := l.ConvertSliding(v.Sliding(), WindowLimitOf(v.Limit), now)
		w, res = l.DecideSliding(w, r.cost, r.mode, now)
		next.SetSliding(w)
	case KindLog:
		l := WindowLimitOf(r.limit)
		converted := l.ConvertLog(v.Log, WindowLimitOf(v.Limit), now)
		c, got, err := l.DecideLogFrom(v.Log, converted.Drop, r.cost, r.mode, now)
		if err != nil {
			panic(err)
		}
		res = got
		if c == (LogChange{}) {
			c = converted
		}
		if changes {
			v.Log.Apply(c)
		} else if c.Cost > 0 {
			panic("a request that must change nothing changes the log")
		}
	}
	if changes {
		*v = next
	}
	return res
}

// refund gives units back to v, which it changes.
func refund(v *Value, units, now int64) Result {
	var res Result
	switch v.Kind {
	case KindBucket, KindLeak:
		b, r := BucketLimitOf(v.Limit).Refund(v.Bucket(), units, now)
		v.SetBucket(b)
		res = r
	case KindFixed:
		w, r := WindowLimitOf(v.Limit).RefundFixed(v.Fixed(), units, now)
		v.SetFixed(w)
		res = r
	case KindSliding:
		w, r := WindowLimitOf(v.Limit).RefundSliding(v.Sliding(), units, now)
		v.SetSliding(w)
		res = r
	case KindLog:
		c, r := WindowLimitOf(v.Limit).RefundLog(v.Log, units, now)
		v.Log.Apply(c)
		res = r
	}
	return res
}
