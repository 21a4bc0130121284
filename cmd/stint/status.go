package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Exit codes of status, for who runs it now and then: a monitor or a container.
const (
	statusHealthy     = 0
	statusProblem     = 1 // it answers, and something is wrong
	statusUnreachable = 2 // it does not answer; wrong flags have this code too
)

// statusCommand is `stint status`. Options that the server has too have the
// same names, so that it finds the server that the same environment or file
// describes.
type statusCommand struct {
	Addr            []string `help:"Address of the server: host:port, tls:host:port or unix:/path. Of several the first counts." default:"127.0.0.1:6390" placeholder:"ADDR"`
	RequirepassFile string   `aliases:"password-file" help:"File that holds the password: its first line. --password-file is the same." placeholder:"FILE"`
	Requirepass     string   `help:"Password, if not in a file. Arguments of a process can be seen by every user of the machine." placeholder:"PASSWORD"`

	Cacert   string `help:"PEM file of the authorities that the server's certificate is checked by. Default: those of the system." placeholder:"FILE"`
	Cert     string `help:"PEM file of a certificate to show to a server with --tls-ca." placeholder:"FILE"`
	Key      string `help:"PEM file of the key of --cert." placeholder:"FILE"`
	Sni      string `help:"Name that the server's certificate must be for. Default: the host of --addr." placeholder:"NAME"`
	Insecure bool   `help:"Do not check the server's certificate. The password goes to whoever answers."`

	Alive   bool     `help:"Exit code 0 with a problem too, as long as a server answers: for checks that restart it, which would mend none."`
	For     Duration `help:"Measure decisions a second for so long, up to 1h. 0: do not." default:"0" placeholder:"DURATION"`
	Timeout Duration `help:"How long the server may take to answer." default:"3s" placeholder:"DURATION"`
	JSON    bool     `name:"json" help:"Write one JSON object. Times are unix seconds, durations seconds, sizes bytes; info has every field of INFO."`
	Config  string   `help:"YAML file to take --addr and the password from." placeholder:"FILE"`
}

// Help is what kong calls the detail of a command.
func (*statusCommand) Help() string {
	return "Exit code 0: healthy. 1: it answers and has a problem: flushes fail or are far behind, more than " +
		"90 % of memory or clients are used, the clock was set back, the TLS certificate ends within 14 days, or it " +
		"answers with an error. 2: it does not answer, or the flags are wrong."
}

// Validate checks what a type cannot, as Config's does.
func (c *statusCommand) Validate() error {
	bad := func(flag, format string, args ...any) error { return &optionError{flag, fmt.Sprintf(format, args...)} }
	if len(c.Addr) == 0 {
		return bad("addr", "an address is needed")
	}
	if err := checkAddr(c.Addr[0]); err != nil {
		return bad("addr", "%v", err)
	}
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(c.Addr[0], tlsPrefix))
	switch {
	case port == "0":
		return bad("addr", "%q has port 0, where nobody listens", c.Addr[0])
	case c.Requirepass != "" && c.RequirepassFile != "":
		return bad("requirepass-file", "a password is given by --requirepass too: give one of them")
	case (c.Cert == "") != (c.Key == ""):
		return bad("cert", "--cert and --key belong together")
	case c.Timeout <= 0 || time.Duration(c.Timeout) > time.Hour:
		return bad("timeout", "%v is out of range: want above 0, up to 1h", c.Timeout)
	case time.Duration(c.For) > time.Hour:
		return bad("for", "%v is out of range: want up to 1h", c.For)
	}
	return nil
}

// run asks the server, writes what it says to w and returns the exit code. An
// error is about the options or about w, not about the server.
func (c *statusCommand) run(w io.Writer) (code int, err error) {
	with := Config{Requirepass: c.Requirepass, RequirepassFile: c.RequirepassFile}
	password, err := with.Password()
	if err != nil {
		return 0, err
	}
	tlsConfig, err := c.tlsConfig()
	if err != nil {
		return 0, err
	}
	r := c.ask(password, func(ctx context.Context) (net.Conn, error) { return dialServer(ctx, c.Addr[0], tlsConfig) })
	code = r.code()
	if c.Alive && code == statusProblem {
		code = statusHealthy
	}
	if c.JSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return code, enc.Encode(r)
	}
	_, err = io.WriteString(w, r.text())
	return code, err
}

// ask makes the report: by one INFO, or by two --for apart.
func (c *statusCommand) ask(password string, dial func(context.Context) (net.Conn, error)) *statusReport {
	addr := c.Addr[0]
	limit := time.Duration(c.Timeout)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	begun := time.Now()
	nc, err := dial(ctx)
	if err != nil {
		return unreachable(addr, dialReason(err, limit))
	}
	defer nc.Close()
	q := newAsker(nc)
	_ = nc.SetDeadline(begun.Add(limit))
	if password != "" {
		if _, err := q.do("AUTH", password); err != nil {
			return failed(addr, err)
		}
	}
	first, err := q.do("INFO")
	if err != nil {
		return failed(addr, err)
	}
	info := parseInfo(first)
	took := time.Since(begun)
	if c.For <= 0 {
		return newReport(addr, info, time.Now(), took)
	}
	<-time.After(time.Duration(c.For))
	_ = nc.SetDeadline(time.Now().Add(limit))
	second, err := q.do("INFO")
	if err != nil {
		return failed(addr, err)
	}
	later := parseInfo(second)
	r := newReport(addr, later, time.Now(), took)
	r.rate(info, later)
	return r
}

// failed is the report when a server that was reached gave an error or none.
func failed(addr string, err error) *statusReport {
	var refused replyError
	if !errors.As(err, &refused) {
		return unreachable(addr, "it does not answer: "+err.Error())
	}
	r := &statusReport{Addr: addr, State: "problem"}
	text := string(refused)
	switch {
	case strings.HasPrefix(text, "NOAUTH"):
		text += ": give its password with --password-file"
	case strings.HasPrefix(text, "WRONGPASS"):
		text = "it does not accept the password: " + text
	}
	r.problem("refused", "%s", text)
	return r
}

// unreachable is the report when nobody answers.
func unreachable(addr, why string) *statusReport {
	r := &statusReport{Addr: addr, State: "unreachable"}
	r.Problems = []statusNote{{"unreachable", why}}
	return r
}
