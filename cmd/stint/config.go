package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/server"
	"github.com/stint-dev/stint/server/command"
)

// Config is everything that can be set about the server. It is filled once,
// from flags, environment and file, checked by Validate, and not changed
// afterwards.
//
// The struct is the only place that knows an option: --help, the names of the
// environment variables, the keys of the file and docs/configuration.md are
// made from it.
type Config struct {
	Config string `help:"YAML file with the same options as keys, for example the line interval: 500ms. An unknown key is an error. The order of precedence is flag, environment, file, default." placeholder:"FILE" group:"General"`

	Addr       []string `help:"Address to listen on: host:port, tls:host:port for TLS, or unix:/path for a socket. May be given several times (in the environment: separated by commas)." default:"127.0.0.1:6390" placeholder:"ADDR" group:"Network"`
	MaxClients Integer  `help:"Most clients connected at the same time; one more is told so and disconnected. Each is an open file: the limit of the system (ulimit -n) must be 32 above it, and one more for each --addr." default:"10000" placeholder:"N" group:"Network"`

	EventLoops string `help:"Event loops that serve connections, 0 to 256; auto: one for every two processors. 0: a goroutine serves each connection, as it always does where a connection has to wait, over TLS, and on other systems than Linux." default:"auto" placeholder:"auto|N" group:"Network"`

	IdleTimeout Duration `help:"Close a connection that has sent nothing for so long. 0: never." default:"0" placeholder:"DURATION" group:"Network"`
	MaxArgument Size     `help:"Largest single argument of a command." default:"1MiB" placeholder:"SIZE" group:"Network"`
	MaxOutput   Size     `help:"Largest single reply: a client that asks for a larger one is disconnected. Smaller ones are given out as the client takes them, however many it asks for." default:"64MiB" placeholder:"SIZE" group:"Network"`

	Requirepass     string `help:"Password that clients must give by AUTH or HELLO. Prefer --requirepass-file: arguments of a process can be seen by every user of the machine." placeholder:"PASSWORD" group:"Security"`
	RequirepassFile string `help:"File that holds the password: its first line. SIGHUP reads it again." placeholder:"FILE" group:"Security"`
	ProtectedMode   string `help:"Without a password, serve clients of this machine only, and those with a certificate that --tls-ca demands: yes or no." default:"yes" placeholder:"yes|no" group:"Security"`

	TLSCert string `name:"tls-cert" help:"PEM file of the certificate for addresses that begin with tls:, followed by those that lead to its authority's. SIGHUP reads it, --tls-key and --tls-ca again." placeholder:"FILE" group:"Security"`
	TLSKey  string `name:"tls-key" help:"PEM file of the private key of --tls-cert." placeholder:"FILE" group:"Security"`
	TLSCa   string `name:"tls-ca" help:"PEM file of authorities: over TLS, only clients are served that show a certificate which one of these has signed, and they need no password because of --protected-mode. Without it clients need no certificate." placeholder:"FILE" group:"Security"`

	Dir        string   `help:"Folder of the state file; created if absent." default:"./stint-data" placeholder:"DIR" group:"State"`
	Durability string   `help:"What survives a crash. none: nothing, there is no state file. interval: all but the last --interval and the time one flush takes. strict: everything that was answered, because the answer waits for the disk. Default: interval, and strict with --raft-addr." placeholder:"none|interval|strict" group:"State"`
	Interval   Duration `help:"How often changed keys are flushed to the state file, 10ms to 1h." default:"1s" placeholder:"DURATION" group:"State"`
	MaxMemory  Size     `help:"Most bytes for keys and their state. At the limit whatever needs more is refused with OOM; nothing that still counts is ever evicted. At least 1MiB; 0: no limit." default:"0" placeholder:"SIZE" group:"State"`

	NodeID          string   `help:"Name of this node in its cluster: 1 to 64 letters, digits, - or _. It stays with the folder." placeholder:"NAME" group:"Cluster"`
	RaftAddr        string   `help:"Address at which the nodes of the cluster speak to each other: host:port. With it this node is part of a cluster." placeholder:"ADDR" group:"Cluster"`
	RaftAdvertise   string   `help:"Address at which the other nodes reach --raft-addr. Default: the same, which must not be 0.0.0.0 or [::] then." placeholder:"ADDR" group:"Cluster"`
	Join            []string `help:"Raft addresses at which the cluster is to be found, separated by commas; the same list on every node, its own included, is fine. Ignored once the node is a member." placeholder:"ADDR,…" group:"Cluster"`
	BootstrapExpect Integer  `help:"Found a new cluster when all nodes of --join are there and empty: so many, which must be the length of that list. Ignored once there is a cluster. 0: never found one." default:"0" placeholder:"N" group:"Cluster"`
	ClientAdvertise []string `help:"Addresses that RAFT LEADER tells clients to reach this node at. Default: those of --addr." placeholder:"ADDR,…" group:"Cluster"`
	RaftTLSCert     string   `name:"raft-tls-cert" help:"PEM file of this node's certificate for the Raft port; both sides of each connection show theirs." placeholder:"FILE" group:"Cluster"`
	RaftTLSKey      string   `name:"raft-tls-key" help:"PEM file of the private key of --raft-tls-cert." placeholder:"FILE" group:"Cluster"`
	RaftTLSCa       string   `name:"raft-tls-ca" help:"PEM file of the authorities that sign the nodes' certificates." placeholder:"FILE" group:"Cluster"`
	RaftInsecure    bool     `help:"Allow a Raft port without TLS on an address that others reach: who can reach it can change every limit." group:"Cluster"`
	ElectionTimeout Duration `help:"For how long the leader may be silent before the others elect another one, 100ms to 1m. The same on all nodes." default:"1s" placeholder:"DURATION" group:"Cluster"`
	Fail            string   `help:"How decisions are answered that cannot be made: error (CLUSTERDOWN), open (allowed), closed (refused), or local (by this node's share of the limit, in its own memory)." default:"error" placeholder:"error|open|closed|local" group:"Cluster"`
	DecisionTimeout Duration `help:"For how long a command waits for a decision where durability is strict, 10ms to 1m: for a leader to be elected, and for a majority to confirm." default:"500ms" placeholder:"DURATION" group:"Cluster"`

	LogFormat string `help:"How the log on stderr is written: text or json." default:"text" placeholder:"text|json" group:"Log"`
	LogLevel  string `help:"Least severe level that is logged: debug, info, warn or error." default:"info" placeholder:"LEVEL" group:"Log"`

	SlowlogSlowerThan Duration `help:"SLOWLOG keeps commands that took so long, or longer; 0: every command. The time is of a pipeline's commands together." default:"10ms" placeholder:"DURATION" group:"Log"`
	SlowlogMaxLen     Integer  `help:"How many entries SLOWLOG keeps; 0: none." default:"128" placeholder:"N" group:"Log"`
	LatencyThreshold  Duration `help:"LATENCY notes commands, flushes and pauses that took so long, or longer, in whole milliseconds; 0: nothing." default:"100ms" placeholder:"DURATION" group:"Log"`

	AdminAddr string `help:"Serve /metrics, /healthz and /readyz over HTTP at host:port. There is no password. Default: they are not served." placeholder:"ADDR" group:"Log"`

	PprofAddr string `help:"Serve profiles of the running program over HTTP at host:port, under /debug/pprof/, for go tool pprof. Loopback addresses only: there is no password, and who asks keeps the server busy. Default: they are not served." placeholder:"ADDR" group:"Log"`

	EnableDebugCommand bool     `help:"Allow DEBUG, which can freeze the clock and empty the server. For tests only." group:"Testing"`
	DebugClock         *Integer `help:"Start with the clock frozen at this unix time in nanoseconds. For tests only." placeholder:"NS" group:"Testing"`
}

// Bounds of the options that have some beyond their type.
const (
	minInterval    = 10 * time.Millisecond // a flush is two syncs of the disk; more often than this it does nothing else
	maxInterval    = time.Hour             // what is lost in a crash; longer is surely a slip
	minMaxArgument = 4096                  // the longest key must fit
	maxMaxArgument = 512 << 20             // as in Redis
	minMaxOutput   = 1 << 20               // the replies to what is decided at a time, and to what clients ask at a handshake, must fit
	maxMaxClients  = server.MaxMaxClients
	maxEventLoops  = 256 // each has a thread and buffers of its own
	minMaxMemory   = server.MinMaxMemory
	maxSlowlog     = server.MaxSlowLog
	maxClock       = 1<<62 - 1 // latest instant the engine decides at, unix ns
)

// optionError is a value that Validate does not accept.
type optionError struct {
	flag string // name without the dashes
	text string // what is wrong and what is allowed
}

func (e *optionError) Error() string { return "--" + e.flag + ": " + e.text }

// Validate checks what a type cannot: ranges and options that exclude one
// another. Words that an option chooses from may come in any case and are put
// into lower case. The error is an *optionError whose text a user understands.
// kong calls it by its name when all the options are filled in.
func (c *Config) Validate() error {
	bad := func(flag, format string, args ...any) error {
		return &optionError{flag, fmt.Sprintf(format, args...)}
	}
	if len(c.Addr) == 0 {
		return bad("addr", "at least one address is needed")
	}
	if c.Durability == "" {
		c.Durability = "interval"
		if c.RaftAddr != "" {
			c.Durability = "strict"
		}
	}
	for _, choice := range []struct {
		flag    string
		value   *string
		allowed []string
	}{
		{"protected-mode", &c.ProtectedMode, []string{"yes", "no"}},
		{"durability", &c.Durability, []string{"none", "interval", "strict"}},
		{"fail", &c.Fail, command.FailModes},
		{"log-format", &c.LogFormat, []string{"text", "json"}},
		{"log-level", &c.LogLevel, []string{"debug", "info", "warn", "error"}},
	} {
		given := *choice.value
		*choice.value = strings.ToLower(given)
		if !slices.Contains(choice.allowed, *choice.value) {
			return bad(choice.flag, "%q is not one of %s", given, strings.Join(choice.allowed, ", "))
		}
	}
	c.EventLoops = strings.ToLower(c.EventLoops)
	seen := map[string]bool{}
	for _, a := range c.Addr {
		if err := checkAddr(a); err != nil {
			return bad("addr", "%v", err)
		}
		if seen[a] {
			return bad("addr", "%q is given twice", a)
		}
		seen[a] = true
	}
	if err := c.checkTLS(); err != nil {
		return err
	}
	if err := c.checkCluster(); err != nil {
		return err
	}
	if c.AdminAddr != "" {
		if err := checkHostPort(c.AdminAddr); err != nil {
			return bad("admin-addr", "%v", err)
		}
	}
	if err := checkPprofAddr(c.PprofAddr); err != nil {
		return bad("pprof-addr", "%v", err)
	}
	switch {
	case c.MaxClients < 1 || c.MaxClients > maxMaxClients:
		return bad("max-clients", "%d is out of range: want 1 to %d", c.MaxClients, maxMaxClients)
	case !validLoops(c.EventLoops):
		return bad("event-loops", "%q is not auto, or a number from 0 to %d", c.EventLoops, maxEventLoops)
	case c.MaxArgument < minMaxArgument || c.MaxArgument > maxMaxArgument:
		return bad("max-argument", "%v is out of range: want %v to %v", c.MaxArgument, Size(minMaxArgument), Size(maxMaxArgument))
	case c.MaxOutput < minMaxOutput:
		return bad("max-output", "%v is too small: want at least %v", c.MaxOutput, Size(minMaxOutput))
	case c.MaxMemory != 0 && c.MaxMemory < minMaxMemory:
		return bad("max-memory", "%v is too small: want at least %v, or 0 for no limit", c.MaxMemory, Size(minMaxMemory))
	case c.Requirepass != "" && c.RequirepassFile != "":
		return bad("requirepass-file", "a password is given by --requirepass too: give one of them")
	case c.Dir == "" && c.Durability != "none":
		return bad("dir", "a folder is needed with --durability %s", c.Durability)
	case time.Duration(c.Interval) < minInterval || time.Duration(c.Interval) > maxInterval:
		return bad("interval", "%v is out of range: want %v to %v", c.Interval, Duration(minInterval), Duration(maxInterval))
	case c.SlowlogMaxLen > maxSlowlog:
		return bad("slowlog-max-len", "%d is out of range: want 0 to %d", c.SlowlogMaxLen, maxSlowlog)
	case c.LatencyThreshold != 0 && time.Duration(c.LatencyThreshold) < time.Millisecond:
		return bad("latency-threshold", "%v is too short: want at least 1ms, or 0 for nothing", c.LatencyThreshold)
	case c.DebugClock != nil && *c.DebugClock > maxClock:
		return bad("debug-clock", "%d is out of range: want unix nanoseconds, 0 to %d", *c.DebugClock, int64(maxClock))
	}
	return nil
}

// validLoops accepts auto and digits.
func validLoops(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return s == "auto" || err == nil && n <= maxEventLoops
}

// eventLoops is the number of event loops to start. With one for every two
// processors the other half is for what the kernel does on the way to a client,
// for flushes and for connections that have to wait: docs/server.md.
func (c *Config) eventLoops() int {
	if c.EventLoops == "auto" {
		return max(1, runtime.GOMAXPROCS(0)/2)
	}
	n, _ := strconv.Atoi(c.EventLoops) // Validate has read it
	return n
}

// checkAddr accepts host:port with a numeric port, the same after tls:, and
// unix:/path.
func checkAddr(a string) error {
	if path, ok := strings.CutPrefix(a, "unix:"); ok {
		if path == "" {
			return fmt.Errorf("%q has no path: want unix:/path", a)
		}
		// The kernel cuts longer names off on some systems and refuses
		// them on others; 103 is the least of the limits.
		if len(path) > 103 {
			return fmt.Errorf("the path of %q is longer than a socket's name may be, 103 bytes", a)
		}
		return nil
	}
	if bare, ok := strings.CutPrefix(a, tlsPrefix); ok {
		if _, _, err := net.SplitHostPort(bare); err != nil {
			return fmt.Errorf("%q is not an address: want tls:host:port, like tls:127.0.0.1:6390", a)
		}
		return checkHostPort(bare)
	}
	return checkHostPort(a)
}

// checkHostPort accepts host:port with a numeric port.
func checkHostPort(a string) error {
	_, port, err := net.SplitHostPort(a)
	if err != nil {
		return fmt.Errorf("%q is not an address: want host:port, like 127.0.0.1:6390, or unix:/path", a)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || (port != strconv.FormatUint(n, 10)) {
		return fmt.Errorf("%q has no port from 0 to 65535", a)
	}
	return nil
}

// maxPassword bounds the password file: a longer first line is surely another
// file given by mistake.
const maxPassword = 4096

// byteOrderMark is U+FEFF in UTF-8.
const byteOrderMark = "\xef\xbb\xbf"

// Password returns the password that clients must give, "" for none. The error
// never contains the password or a part of the file.
func (c *Config) Password() (string, error) {
	if c.RequirepassFile == "" {
		return c.Requirepass, nil
	}
	// A byte order mark, the password, the end of the line: what follows does
	// not matter, and may be without end.
	data, err := readStart(c.RequirepassFile, int64(len(byteOrderMark)+maxPassword+len("\r\n")))
	if err != nil {
		return "", &optionError{"requirepass-file", fmt.Sprintf("the password cannot be read: %v", err)}
	}
	// Some editors begin every file with a byte order mark, which nobody sees
	// and no client sends.
	line, _, _ := strings.Cut(strings.TrimPrefix(string(data), byteOrderMark), "\n")
	line = strings.TrimSuffix(line, "\r")
	switch {
	case line == "":
		return "", &optionError{"requirepass-file", fmt.Sprintf("the first line of %s is empty: it must hold the password", c.RequirepassFile)}
	case len(line) > maxPassword:
		return "", &optionError{"requirepass-file", fmt.Sprintf("the first line of %s is longer than %d bytes: is it the right file?", c.RequirepassFile, maxPassword)}
	}
	return line, nil
}

// readStart reads the first bytes of a file, at most n.
func readStart(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, n))
}

// stateDir is the folder of the state file as an absolute path, so that logs
// and errors name the same folder whatever the working directory is.
func (c *Config) stateDir() string {
	if abs, err := filepath.Abs(c.Dir); err == nil {
		return abs
	}
	return c.Dir
}
