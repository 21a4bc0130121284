package limit

// Share is what one of n nodes may admit by itself while they cannot agree: the
// n-th part of the capacity, rounded down but at least 1, at the n-th part of the
// rate. All n together admit at most max(Capacity, n), and the rate. l must have
// passed Check; so does its share.
func (l BucketLimit) Share(n int64) BucketLimit {
	if n <= 1 {
		return l
	}
	s := BucketLimit{Capacity: max(1, l.Capacity/n), Rate: l.Rate}
	if l.Rate.Period <= (1<<63-1)/n {
		s.Rate.Period *= n
	}
	if s.Check() != nil {
		// It would take too long to fill: slower is not to be had.
		s.Rate = l.Rate
	}
	return s
}

// Share is what one of n nodes may admit by itself: see BucketLimit.Share.
func (l WindowLimit) Share(n int64) WindowLimit {
	if n > 1 {
		l.Limit = max(1, l.Limit/n)
	}
	return l
}
