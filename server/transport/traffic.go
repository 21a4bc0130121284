package transport

// Traffic is what one connection has moved so far.
type Traffic struct {
	BytesIn, BytesOut uint64
	Commands          uint64 // handed to its session
	Held              int64  // bytes of replies that the client has not taken, if they are over 64 KiB; else 0
}

// Traffic returns what the connection of that ID has moved, and whether there
// is one.
func (s *Server) Traffic(id uint64) (Traffic, bool) {
	s.mu.Lock()
	c := s.conns[id]
	s.mu.Unlock()
	if c == nil {
		return Traffic{}, false
	}
	return Traffic{
		BytesIn:  c.bytesIn.Load(),
		BytesOut: c.bytesOut.Load(),
		Commands: c.commands.Load(),
		Held:     c.owed.Load(),
	}, true
}
