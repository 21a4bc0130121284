//go:build !linux

package port

import (
	"net"
	"time"
)

// setUnacknowledged does nothing where the system has no such option.
func setUnacknowledged(net.Conn, time.Duration) {}
