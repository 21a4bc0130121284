package command

import (
	"bytes"
	"math"

	"github.com/stint-dev/stint/server/resp"
)

// connectionCommands are the handshakes: what a client sends before it comes
// to the point.
var connectionCommands = []Command{
	{
		Name: "hello", Group: "connection", Since: "0.1.0",
		Syntax:  "[protover [AUTH username password] [SETNAME clientname]]",
		Summary: "Chooses the version of the protocol, and authenticates and names the connection on the way",
		Arity:   -1, Flags: Fast | NoAuth, Conn: hello,
	},
	{
		Name: "auth", Group: "connection", Since: "0.1.0",
		Syntax:  "[username] password",
		Summary: "Authenticates the connection; the only user is default",
		Arity:   -2, Flags: Fast | NoAuth, Conn: auth,
	},
	{
		Name: "select", Group: "connection", Since: "0.1.0",
		Syntax:  "index",
		Summary: "Changes the database of the connection, 0 to 15",
		Arity:   2, Flags: Fast, Conn: selectDB,
	},
	{
		Name: "ping", Group: "connection", Since: "0.1.0",
		Syntax:  "[message]",
		Summary: "Replies PONG, or the message",
		Arity:   -1, Flags: Fast, Conn: ping,
	},
	{
		Name: "echo", Group: "connection", Since: "0.1.0",
		Syntax:  "message",
		Summary: "Replies the message",
		Arity:   2, Flags: Fast,
		Conn: func(c *ConnCtx) { c.W.Bulk(c.Args[1]) },
	},
	{
		Name: "quit", Group: "connection", Since: "0.1.0",
		Summary: "Replies OK and closes the connection; what was sent after it is not run",
		Arity:   1, Flags: Fast | NoAuth,
		Conn: func(c *ConnCtx) {
			c.W.OK()
			c.Conn.Closing = true
		},
	},
	{
		Name: "reset", Group: "connection", Since: "0.1.0",
		Summary: "Makes the connection as if it had just been opened: RESP2, database 0, no name, not authenticated",
		Arity:   1, Flags: Fast | NoAuth,
		Conn: func(c *ConnCtx) {
			c.Conn.reset(c.Server)
			c.W.Proto = c.Conn.Proto
			c.W.Simple("RESET")
		},
	},
	{
		Name: "readonly", Group: "connection", Since: "0.1.0",
		Summary: "Replies OK: there is no replica to read from",
		Arity:   1, Flags: Fast,
		Conn: func(c *ConnCtx) { c.W.OK() },
	},
	{
		Name: "readwrite", Group: "connection", Since: "0.1.0",
		Summary: "Replies OK: there is no replica to read from",
		Arity:   1, Flags: Fast,
		Conn: func(c *ConnCtx) { c.W.OK() },
	},
}

// Errors of the handshakes, in Redis's words: clients show them to people who
// look them up.
const (
	errProtocolVersion = "ERR Protocol version is not an integer or out of range"
	errHelloNoAuth     = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time"
	errNotInteger      = "ERR value is not an integer or out of range"
	errDBIndex         = "ERR DB index is out of range"
)

// hello checks everything before it changes anything: a refused HELLO leaves
// the connection as it was, but for an AUTH that was right.
func hello(c *ConnCtx) {
	proto := c.Conn.Proto
	args := c.Args[1:]
	if len(args) > 0 {
		n, ok := parseNumber(args[0], math.MaxInt64)
		if !ok {
			c.W.Error(errProtocolVersion)
			return
		}
		if n != resp.RESP2 && n != resp.RESP3 {
			c.W.Error(ErrNoProto)
			return
		}
		proto = uint8(n)
		args = args[1:]
	}
	var user, password, name []byte
	var hasAuth, hasName bool
	for len(args) > 0 {
		switch {
		case foldEqual(args[0], "AUTH") && len(args) >= 3:
			user, password, hasAuth = args[1], args[2], true
			args = args[3:]
		case foldEqual(args[0], "SETNAME") && len(args) >= 2:
			name, hasName = args[1], true
			args = args[2:]
		default:
			c.W.Error("ERR Syntax error in HELLO option " + resp.Quote(args[0]))
			return
		}
	}
	if hasName {
		if line := checkName("Client names", name); line != "" {
			c.W.Error(line)
			return
		}
	}
	if hasAuth && !c.Conn.authenticate(c.Server, user, password) {
		c.W.Error(ErrWrongPass)
		return
	}
	if !c.Conn.Authenticated {
		c.W.Error(errHelloNoAuth)
		return
	}
	if hasName {
		c.Conn.Name = string(name)
	}
	c.Conn.Proto = proto
	c.W.Proto = proto

	c.W.Map(7)
	c.W.BulkString("server")
	c.W.BulkString("redis")
	c.W.BulkString("version")
	c.W.BulkString(RedisVersion)
	c.W.BulkString("proto")
	c.W.Int(int64(proto))
	c.W.BulkString("id")
	c.W.Int(int64(c.Conn.ID))
	c.W.BulkString("mode")
	c.W.BulkString("standalone")
	c.W.BulkString("role")
	c.W.BulkString("master")
	c.W.BulkString("modules")
	c.W.Array(0)
}

func auth(c *ConnCtx) {
	if len(c.Args) > 3 {
		c.W.Error(ErrSyntax)
		return
	}
	user, password := []byte(defaultUser), c.Args[1]
	if len(c.Args) == 3 {
		user, password = c.Args[1], c.Args[2]
	} else if !c.Server.Password.Required() {
		// Whoever sends a password believes that there is one.
		c.W.Error(ErrNoPassword)
		return
	}
	if !c.Conn.authenticate(c.Server, user, password) {
		c.W.Error(ErrWrongPass)
		return
	}
	c.W.OK()
}

func selectDB(c *ConnCtx) {
	digits, negative := bytes.CutPrefix(c.Args[1], []byte("-"))
	n, ok := parseNumber(digits, math.MaxInt64)
	switch {
	case !ok || negative && n == 0:
		c.W.Error(errNotInteger)
	case negative || n >= databases:
		c.W.Error(errDBIndex)
	default:
		c.Conn.DB = uint8(n)
		c.W.OK()
	}
}

func ping(c *ConnCtx) {
	switch len(c.Args) {
	case 1:
		c.W.Simple("PONG")
	case 2:
		c.W.Bulk(c.Args[1])
	default:
		c.W.Error(ErrArity("ping"))
	}
}
