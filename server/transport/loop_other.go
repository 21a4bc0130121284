//go:build !linux

package transport

import "time"

// There are no event loops on this system: a goroutine serves each connection.
type loops struct{ s *Server }

type looped struct{}

func (*looped) close() {}

func (*loops) stop()          {}
func (*loops) adopt(*conn)    {}
func (*loops) look(time.Time) {}
func (*loops) drain()         {}
func (c *conn) mayMove() bool { return false }

const stayFirst, stayLeast = 0, 0
