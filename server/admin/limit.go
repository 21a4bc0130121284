package admin

import (
	"net"
	"sync"
)

// limitListener accepts no more connections than it has slots; the next one
// waits in the system's queue until another is closed. Safe for use by many
// goroutines.
type limitListener struct {
	net.Listener
	slots chan struct{} // one element for each open connection
	done  chan struct{} // closed by Close: who waits for a slot gives up
	once  sync.Once
}

func newLimitListener(l net.Listener, slots int) *limitListener {
	return &limitListener{Listener: l, slots: make(chan struct{}, slots), done: make(chan struct{})}
}

// open is how many connections are open.
func (l *limitListener) open() int { return len(l.slots) }

// Accept waits for a slot, then for a connection.
func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitConn{Conn: c, slots: l.slots}, nil
}

func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// limitConn gives its slot back when it is closed, which net/http may do twice.
type limitConn struct {
	net.Conn
	slots chan struct{}
	once  sync.Once
}

func (c *limitConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.slots })
	return err
}
