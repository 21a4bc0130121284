package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// unixPrefix begins the address of a unix socket.
const unixPrefix = "unix:"

// IsUnix reports whether addr names a unix socket.
func IsUnix(addr string) bool { return strings.HasPrefix(addr, unixPrefix) }

// Listen opens a listener: host:port for TCP, unix:/path for a unix socket.
// TCP connections get keepalive probes after a minute of silence, so that one
// whose client vanished without a word is found, and send small replies at once.
//
// The file of a unix socket gets mode 0700: only the user that runs the server
// connects, whatever the umask was (one that lets others write leaves them the
// moment between creation and that change). A file left behind by a server that
// was killed is removed; one where somebody listens, or that is not a socket,
// is an error. The file goes when the listener is closed.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	if IsUnix(addr) {
		return listenUnix(ctx, strings.TrimPrefix(addr, unixPrefix))
	}
	config := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: time.Minute, Interval: 20 * time.Second, Count: 3,
	}}
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("open the listener %s: %w", addr, err)
	}
	return l, nil
}

func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if path == "" {
		return nil, errors.New("open the listener unix:: the path is missing, want unix:/path")
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, fmt.Errorf("open the listener unix:%s: %w", path, err)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the listener unix:%s: %w", path, err)
	}
	if err := os.Chmod(path, 0o700); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("open the listener unix:%s: %w", path, err)
	}
	return l, nil
}

// removeStale removes the socket at path if nobody listens on it.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return errors.New("there is a file of that name, and it is not a socket")
	}
	dialer := net.Dialer{Timeout: time.Second}
	nc, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		_ = nc.Close()
		return errors.New("another process listens there")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("find out whether another process listens there: %w", err)
	}
	return os.Remove(path)
}
