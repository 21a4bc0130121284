package proc

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// startWithin is how long a server with nothing to load may take to answer.
const startWithin = 10 * time.Second

// Server is a server process that this program started. Stop must be called.
type Server struct {
	Name    string
	Addr    string // host:port it listens on
	process *os.Process
	ended   chan struct{} // closed when the process is gone
	dir     string        // its own folder: data and log
	args    []string      // its command line
}

// Pid is the server's process id.
func (s *Server) Pid() int { return s.process.Pid }

// Start runs a program as a server and waits until it answers PING. command
// makes its command line from the address it is to listen on, on loopback, and
// a folder of its own that goes when it is stopped.
func Start(ctx context.Context, name string, command func(host, port, dir string) []string) (*Server, error) {
	dir, err := os.MkdirTemp("", "stint-bench-")
	if err != nil {
		return nil, fmt.Errorf("%s has no folder to run in: %w", name, err)
	}
	s := &Server{Name: name, ended: make(chan struct{}), dir: dir}
	if err := s.start(command); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("%s did not start: %w", name, err)
	}
	if err := s.awaitPong(ctx, startWithin); err != nil {
		said := s.lastWords()
		s.Stop()
		return nil, fmt.Errorf("%s did not come up: %w%s", name, err, said)
	}
	return s, nil
}

func (s *Server) start(command func(host, port, dir string) []string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	s.Addr = net.JoinHostPort("127.0.0.1", port)
	s.args = command("127.0.0.1", port, s.dir)
	return s.launch()
}

// launch starts the process by its command line.
func (s *Server) launch() error {
	log, err := os.Create(filepath.Join(s.dir, "output.log"))
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(s.args[0], s.args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = s.dir
	cmd.SysProcAttr = attributes()

	// The system ends the child when the thread that started it ends (see
	// attributes), so that thread is kept until the child is gone.
	started := make(chan error, 1)
	ended := s.ended
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		s.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is said by its log
			close(ended)
		}
	}()
	return <-started
}

// awaitPong asks until the server answers, for as long as is given.
func (s *Server) awaitPong(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for {
		if ping(s.Addr) {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("it ended at once")
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", ctx.Err())
		case <-retry.C:
		}
	}
}

func ping(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return false
	}
	answer := make([]byte, 7)
	n, _ := conn.Read(answer)
	return string(answer[:n]) == "+PONG\r\n"
}

// lastWords is the end of what the server printed, for an error message.
func (s *Server) lastWords() string {
	text, err := os.ReadFile(filepath.Join(s.dir, "output.log"))
	said := strings.TrimSpace(string(text))
	if err != nil || said == "" {
		return ""
	}
	lines := strings.Split(said, "\n")
	return "; it said: " + strings.Join(lines[max(0, len(lines)-3):], " / ")
}

// Stop ends the server, kindly at first and after 10 s for certain, waits
// until it is gone, and removes its folder. Only the process that Start made
// is ever signalled.
func (s *Server) Stop() {
	_ = s.process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
		_ = os.RemoveAll(s.dir)
	case <-time.After(10 * time.Second):
		s.Kill()
	}
}

// Kill is Stop without kindness, for a server whose state nobody wants any
// more: to save millions of keys takes its time.
func (s *Server) Kill() {
	_ = s.process.Kill()
	<-s.ended
	_ = os.RemoveAll(s.dir)
}

// Restart stops the server and starts it again with the same command line and
// folder. It returns how long it took to stop, from the signal to the end of
// the process, and to answer again, from the start of the new process to its
// first PONG. Each may take as long as within. After an error Stop or Kill is
// still to be called.
func (s *Server) Restart(ctx context.Context, within time.Duration) (stopped, ready time.Duration, err error) {
	begin := time.Now()
	if err := s.process.Signal(syscall.SIGTERM); err != nil {
		return 0, 0, fmt.Errorf("%s is not there to be restarted: %w", s.Name, err)
	}
	select {
	case <-s.ended:
	case <-time.After(within):
		return 0, 0, fmt.Errorf("%s did not stop within %v%s", s.Name, within, s.lastWords())
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	stopped, begin = time.Since(begin), time.Now()
	old := s.process
	s.ended = make(chan struct{})
	if err := s.launch(); err != nil {
		s.process = old
		close(s.ended)
		return 0, 0, fmt.Errorf("%s did not start again: %w", s.Name, err)
	}
	if err := s.awaitPong(ctx, within); err != nil {
		return 0, 0, fmt.Errorf("%s did not come up again: %w%s", s.Name, err, s.lastWords())
	}
	return stopped, time.Since(begin), nil
}

// freePort finds a port on loopback that nobody listens on. Somebody may take
// it before the server does; then the server says so and the run ends.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
