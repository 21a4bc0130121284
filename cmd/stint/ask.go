package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// The least of a client: what `stint status` needs to ask a server one thing.

// maxAnswer bounds a reply in bytes: what is longer is no INFO.
const maxAnswer = 1 << 20

// asker sends commands and reads replies, one at a time.
type asker struct {
	nc net.Conn
	r  *bufio.Reader
}

func newAsker(nc net.Conn) *asker { return &asker{nc, bufio.NewReader(nc)} }

// replyError is an error that the server replied.
type replyError string

func (e replyError) Error() string { return string(e) }

// errNoRedis is a reply of another protocol, or a line longer than any of a
// server's: 4 KiB.
var errNoRedis = errors.New("what answers does not speak the Redis protocol")

// errNil is a reply of nothing.
var errNil = errors.New("the reply is nil")

// do sends one command and returns its reply, a string of either kind. An error
// of the server's is a replyError.
func (a *asker) do(args ...string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	// A server that turns a client away says why before it is asked.
	_, sent := io.WriteString(a.nc, b.String())
	line, err := a.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", errNoRedis
	case err != nil:
		return "", readReason(errors.Join(err, sent))
	}
	text, ok := strings.CutSuffix(string(line), "\r\n")
	if !ok || text == "" {
		return "", errNoRedis
	}
	switch kind, rest := text[0], text[1:]; kind {
	case '+':
		return rest, nil
	case '-':
		return "", replyError(rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if n == -1 {
			return "", errNil
		}
		if err != nil || n < 0 || n > maxAnswer {
			return "", fmt.Errorf("a reply of %.20q bytes is none that INFO has", rest)
		}
		body := make([]byte, n+2)
		if _, err := io.ReadFull(a.r, body); err != nil {
			return "", readReason(err)
		}
		return string(body[:n]), nil
	}
	return "", errNoRedis
}

// readReason words the error of a read for people.
func readReason(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("no reply in time")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the connection was closed without a reply; does the address speak TLS (tls:host:port)?")
	}
	return err
}

// dialServer connects to an address as --addr has it. An address that stands for
// all of a machine's leads to this machine.
func dialServer(ctx context.Context, addr string, config *tls.Config) (net.Conn, error) {
	var d net.Dialer
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return d.DialContext(ctx, "unix", path)
	}
	bare, secure := strings.CutPrefix(addr, tlsPrefix)
	host, port, err := net.SplitHostPort(bare)
	if err != nil {
		return nil, err
	}
	switch ip := net.ParseIP(host); {
	case host == "", ip != nil && ip.IsUnspecified() && ip.To4() != nil:
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	nc, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil || !secure {
		return nc, err
	}
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName = host
	}
	c := tls.Client(nc, config)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, &handshakeError{err}
	}
	return c, nil
}

// handshakeError is an error of a handshake: somebody was there.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// dialReason says why there is no connection.
func dialReason(err error, limit time.Duration) string {
	var shake *handshakeError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no connection in %v", limit)
	case errors.As(err, &shake):
		var plain tls.RecordHeaderError
		if errors.As(err, &plain) {
			return "it does not speak TLS: give the address without tls:"
		}
		return "there is no agreement on TLS: " + err.Error()
	}
	return err.Error()
}

// tlsConfig is what the options say about TLS. It is not used without tls: in
// the address.
func (c *statusCommand) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.Sni, InsecureSkipVerify: c.Insecure}
	if c.Cacert != "" {
		data, err := os.ReadFile(c.Cacert)
		if err != nil {
			return nil, &optionError{"cacert", fmt.Sprintf("the file cannot be read: %v", err)}
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, &optionError{"cacert", c.Cacert + " holds no certificate in PEM form"}
		}
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, &optionError{"cert", fmt.Sprintf("certificate and key cannot be used: %v", err)}
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
