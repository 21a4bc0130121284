package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Bounds of the times of a cluster.
const (
	minElection = 100 * time.Millisecond // below it, a pause of the machine would be an election
	minDecision = 10 * time.Millisecond
	maxRaftTime = time.Minute
)

var nodeName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// clustered says whether this node meets others.
func (c *Config) clustered() bool { return c.RaftAddr != "" }

// advertised is the address at which other nodes reach this one.
func (c *Config) advertised() string {
	if c.RaftAdvertise != "" {
		return c.RaftAdvertise
	}
	return c.RaftAddr
}

// checkCluster accepts the options of a cluster when they are complete, and of use.
func (c *Config) checkCluster() error {
	bad := func(flag, format string, args ...any) error {
		return &optionError{flag, fmt.Sprintf(format, args...)}
	}
	for _, t := range []struct {
		flag  string
		value Duration
		least time.Duration
	}{{"election-timeout", c.ElectionTimeout, minElection}, {"decision-timeout", c.DecisionTimeout, minDecision}} {
		if d := time.Duration(t.value); d < t.least || d > maxRaftTime {
			return bad(t.flag, "%v is out of range: want %v to %v", t.value, Duration(t.least), Duration(maxRaftTime))
		}
	}
	if !c.clustered() {
		for _, o := range []struct {
			flag  string
			given bool
		}{
			{"node-id", c.NodeID != ""}, {"raft-advertise", c.RaftAdvertise != ""}, {"join", len(c.Join) > 0},
			{"bootstrap-expect", c.BootstrapExpect != 0}, {"raft-tls-cert", c.RaftTLSCert != ""},
			{"raft-tls-key", c.RaftTLSKey != ""}, {"raft-tls-ca", c.RaftTLSCa != ""},
		} {
			if o.given {
				return bad(o.flag, "it is of use in a cluster only: give --raft-addr too")
			}
		}
		return nil
	}
	if c.Durability != "strict" {
		return bad("durability", "%q is given, and the nodes of a cluster have strict", c.Durability)
	}
	if !nodeName.MatchString(c.NodeID) {
		if c.NodeID == "" {
			return bad("node-id", "a node of a cluster needs a name, like n1")
		}
		return bad("node-id", "%.80q is no name: want 1 to 64 letters, digits, - or _", c.NodeID)
	}
	if err := checkHostPort(c.RaftAddr); err != nil {
		return bad("raft-addr", "%v", err)
	}
	if err := checkHostPort(c.advertised()); err != nil {
		return bad("raft-advertise", "%v", err)
	}
	host, port, _ := net.SplitHostPort(c.advertised())
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return bad("raft-advertise", "%s stands for all addresses of this machine, which others cannot connect to: give the one at which they reach it", c.advertised())
	}
	if port == "0" {
		return bad("raft-advertise", "port 0 is none that others can connect to")
	}
	for _, a := range c.Join {
		if err := checkHostPort(a); err != nil {
			return bad("join", "%v", err)
		}
	}
	if n := int(c.BootstrapExpect); n != 0 {
		list := slices.Clone(c.Join)
		slices.Sort(list)
		if len(slices.Compact(list)) != n {
			return bad("bootstrap-expect", "%d nodes are expected, and --join lists %d: want the same number, each address once", n, len(slices.Compact(list)))
		}
		if !slices.Contains(c.Join, c.advertised()) {
			return bad("join", "this node's own address %s is not in the list: the nodes that found a cluster must be", c.advertised())
		}
	}
	files := 0
	for _, f := range []string{c.RaftTLSCert, c.RaftTLSKey, c.RaftTLSCa} {
		if f != "" {
			files++
		}
	}
	if files != 0 && files != 3 {
		return bad("raft-tls-cert", "--raft-tls-cert, --raft-tls-key and --raft-tls-ca belong together: give all or none")
	}
	listens, _, _ := net.SplitHostPort(c.RaftAddr)
	if files == 0 && !c.RaftInsecure && !loopback(listens) {
		return bad("raft-addr", "%s can be reached from elsewhere, and the port has no password: give --raft-tls-cert, --raft-tls-key and --raft-tls-ca, or --raft-insecure if the network is safe", c.RaftAddr)
	}
	return nil
}

// raftTLS reads the certificates of the Raft port, nil if it has none. Both sides
// show one that the authority has signed. The error is an *optionError.
func (c *Config) raftTLS() (server, client *tls.Config, err error) {
	if c.RaftTLSCert == "" {
		return nil, nil, nil
	}
	cert, err := tls.LoadX509KeyPair(c.RaftTLSCert, c.RaftTLSKey)
	if err != nil {
		return nil, nil, &optionError{"raft-tls-cert", fmt.Sprintf("the certificate cannot be used: %s", strings.TrimPrefix(err.Error(), "tls: "))}
	}
	pem, err := os.ReadFile(c.RaftTLSCa)
	if err != nil {
		return nil, nil, &optionError{"raft-tls-ca", err.Error()}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, nil, &optionError{"raft-tls-ca", c.RaftTLSCa + " holds no certificate in PEM form"}
	}
	server = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	client = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, RootCAs: pool}
	return server, client, nil
}
