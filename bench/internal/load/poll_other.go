//go:build !linux

package load

import (
	"errors"
	"time"
)

var errPlatform = errors.New("the load generator needs Linux (epoll)")

// poller stands in where there is no epoll: nothing can be opened.
type poller struct{}

func (p *poller) open() error                            { return errPlatform }
func (p *poller) close()                                 {}
func (p *poller) add(fd, index int) error                { return errPlatform }
func (p *poller) wantWrite(fd, index int, _ bool) error  { return errPlatform }
func (p *poller) wait(time.Duration) (int, error)        { return 0, errPlatform }
func (p *poller) waitExactly(time.Duration) (int, error) { return 0, errPlatform }
func (p *poller) event(int) (index int, writable bool)   { return 0, false }

func preciseTimers() {}

func dial(string) (int, error)       { return 0, errPlatform }
func write(int, []byte) (int, error) { return 0, errPlatform }
func read(int, []byte) (int, error)  { return 0, errPlatform }
func closeFD(int)                    {}
