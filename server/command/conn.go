package command

import (
	"io"
	"time"

	"github.com/stint-dev/stint/server/resp"
)

// Conn is the state of one connection. Only the goroutine that drives the
// connection's session touches it.
type Conn struct {
	ID        uint64    // from 1, never used again while the server runs
	Addr      string    // the client's address
	LocalAddr string    // the listener's address
	Unix      bool      // came over a unix socket
	Created   time.Time // when it was accepted

	Authenticated bool // may run every command
	Closing       bool // to be closed once the replies so far are sent

	Profile

	LastCmd *Command // the command run last, nil before the first

	usage *usageShard // where its commands are counted
	peer  *peer       // what others may know of it, nil before Join

	backup io.ReadCloser // being read by RAFT BACKUP; nil: none
}

// Profile is what a connection has chosen, and CLIENT LIST shows to others.
type Profile struct {
	Name    string // CLIENT SETNAME
	LibName string // CLIENT SETINFO LIB-NAME
	LibVer  string // CLIENT SETINFO LIB-VER

	Proto uint8 // RESP version replies are written in
	DB    uint8 // selected database

	Tracking bool // CLIENT TRACKING ON OPTIN
	NoLoop   bool // … NOLOOP
	NoEvict  bool // CLIENT NO-EVICT ON
	NoTouch  bool // CLIENT NO-TOUCH ON
}

// newProfile is that of a connection which has chosen nothing.
var newProfile = Profile{Proto: resp.RESP2}

// NewConn is the state of a connection just accepted: RESP2, database 0, and
// authenticated if the server asks for no password.
func NewConn(s *Server, id uint64, addr, local string) Conn {
	return Conn{
		ID: id, Addr: addr, LocalAddr: local, Created: s.now(),
		Profile: newProfile, Authenticated: !s.Password.Required(),
		usage: s.usage.shard(id),
	}
}

// reset is the command RESET: as if the connection had just been accepted.
func (c *Conn) reset(s *Server) {
	c.Proto, c.DB = 2, 0
	c.Authenticated = !s.Password.Required()
	c.Name = ""
	c.Tracking, c.NoLoop, c.NoEvict, c.NoTouch = false, false, false, false
}

// authenticate marks the connection as allowed to run everything if user and
// password are right.
func (c *Conn) authenticate(s *Server, user, password []byte) bool {
	ok := s.Password.Check(password)
	if string(user) != defaultUser || !ok {
		s.Counters.AuthFailures.Add(1)
		return false
	}
	c.Authenticated = true
	return true
}

// defaultUser is the only user there is.
const defaultUser = "default"
