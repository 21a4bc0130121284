package command

import (
	"strconv"

	"github.com/stint-dev/stint/server/resp"
)

// maxConnName bounds the names that a client gives its connection, in bytes:
// they stay in memory as long as it does.
const maxConnName = 1024

// clientCommands is CLIENT: what a connection says about itself.
var clientCommands = []Command{{
	Name: "client", Group: "connection", Since: "0.1.0",
	Syntax:  "subcommand [argument ...]",
	Summary: "What the connection is and what it can do",
	Arity:   -2,
	Sub: []Command{
		{
			Name: "id", Group: "connection", Since: "0.1.0",
			Summary: "Replies the number of the connection", Arity: 2, Flags: Fast,
			Conn: func(c *ConnCtx) { c.W.Int(int64(c.Conn.ID)) },
		},
		{
			Name: "info", Group: "connection", Since: "0.1.0",
			Summary: "Replies a line about the connection", Arity: 2, Flags: Fast,
			Conn: clientInfo,
		},
		{
			Name: "list", Group: "connection", Since: "0.1.0", Syntax: "[TYPE <NORMAL | MASTER | REPLICA | PUBSUB> | ID client-id [client-id ...]]",
			Summary: "Replies a line about each connection, the oldest first", Arity: -2, Flags: Admin, Conn: clientList,
		},
		{
			Name: "kill", Group: "connection", Since: "0.1.0",
			Syntax:  "<ip:port | filter value> [filter value ...]",
			Summary: "Closes the connection of an address, or all that every filter means: ID, ADDR, LADDR, TYPE, USER, MAXAGE seconds, SKIPME yes or no",
			Arity:   -3, Flags: Admin, Conn: clientKill,
		},
		{
			Name: "setname", Group: "connection", Since: "0.1.0", Syntax: "name",
			Summary: "Names the connection", Arity: 3, Flags: Fast, Conn: clientSetName,
		},
		{
			Name: "getname", Group: "connection", Since: "0.1.0",
			Summary: "Replies the name of the connection", Arity: 2, Flags: Fast,
			Conn: func(c *ConnCtx) {
				if c.Conn.Name == "" {
					c.W.Null()
					return
				}
				c.W.BulkString(c.Conn.Name)
			},
		},
		{
			Name: "setinfo", Group: "connection", Since: "0.1.0", Syntax: "<LIB-NAME | LIB-VER> value",
			Summary: "Tells which library the client uses", Arity: 4, Flags: Fast, Conn: clientSetInfo,
		},
		{
			Name: "no-evict", Group: "connection", Since: "0.1.0", Syntax: "<ON | OFF>",
			Summary: "Accepted for compatibility: no client is ever evicted", Arity: 3, Flags: Fast,
			Conn: func(c *ConnCtx) { onOff(c, &c.Conn.NoEvict) },
		},
		{
			Name: "no-touch", Group: "connection", Since: "0.1.0", Syntax: "<ON | OFF>",
			Summary: "Accepted for compatibility: reading a key changes nothing", Arity: 3, Flags: Fast,
			Conn: func(c *ConnCtx) { onOff(c, &c.Conn.NoTouch) },
		},
		{
			Name: "tracking", Group: "connection", Since: "0.1.0", Syntax: "<ON | OFF> [OPTIN] [NOLOOP]",
			Summary: "Accepted with OPTIN: keys are never announced as changed, so nothing may be cached", Arity: -3, Flags: Fast, Conn: clientTracking,
		},
		{
			Name: "trackinginfo", Group: "connection", Since: "0.1.0",
			Summary: "Replies how tracking stands", Arity: 2, Flags: Fast, Conn: clientTrackingInfo,
		},
		{
			Name: "caching", Group: "connection", Since: "0.1.0", Syntax: "<YES | NO>",
			Summary: "YES is refused: what a limiter replies must not be cached", Arity: 3, Flags: Fast, Conn: clientCaching,
		},
		{
			Name: "getredir", Group: "connection", Since: "0.1.0",
			Summary: "Replies -1, or 0 while tracking: messages are never redirected", Arity: 2, Flags: Fast,
			Conn: func(c *ConnCtx) { c.W.Int(redirect(c.Conn.Tracking)) },
		},
	},
}}

// checkName says what is wrong with a name that is shown in lists of
// connections, "" if nothing is. what is the subject of the sentence.
func checkName(what string, name []byte) string {
	if len(name) > maxConnName {
		return "ERR " + what + " cannot be longer than " + strconv.Itoa(maxConnName) + " bytes"
	}
	for _, b := range name {
		if b < '!' || b > '~' {
			return "ERR " + what + " cannot contain spaces, newlines or special characters."
		}
	}
	return ""
}

func clientSetName(c *ConnCtx) {
	if line := checkName("Client names", c.Args[2]); line != "" {
		c.W.Error(line)
		return
	}
	c.Conn.Name = string(c.Args[2])
	c.W.OK()
}

func clientSetInfo(c *ConnCtx) {
	var what string
	var field *string
	switch {
	case foldEqual(c.Args[2], "LIB-NAME"):
		what, field = "lib-name", &c.Conn.LibName
	case foldEqual(c.Args[2], "LIB-VER"):
		what, field = "lib-ver", &c.Conn.LibVer
	default:
		c.W.Error("ERR Unrecognized option " + resp.Quote(c.Args[2]))
		return
	}
	if line := checkName(what, c.Args[3]); line != "" {
		c.W.Error(line)
		return
	}
	*field = string(c.Args[3])
	c.W.OK()
}

// clientInfo is the line of CLIENT LIST about the connection that asks.
func clientInfo(c *ConnCtx) {
	cl, ok := c.Server.client(c.Conn.peer, c.Conn)
	if !ok {
		// The transport has just closed it: nobody reads this.
		c.W.Error(ErrInternal)
		return
	}
	c.W.Verbatim("txt", string(cl.append(nil, c.Server.now()))+"\n")
}

// onOff sets the field to what the third word says.
func onOff(c *ConnCtx, field *bool) {
	switch {
	case foldEqual(c.Args[2], "ON"):
		*field = true
	case foldEqual(c.Args[2], "OFF"):
		*field = false
	default:
		c.W.Error(ErrSyntax)
		return
	}
	c.W.OK()
}

// Only opt-in tracking can be promised: nothing is cached without CLIENT
// CACHING YES, which is refused, so no message of a change is ever owed.
const (
	errTracking = "ERR CLIENT TRACKING ON is accepted with OPTIN only: changes of keys are not announced"
	errCaching  = "ERR CLIENT CACHING YES is refused: what a limiter replies must not be cached"
)

func clientTracking(c *ConnCtx) {
	on := foldEqual(c.Args[2], "ON")
	if !on && !foldEqual(c.Args[2], "OFF") {
		c.W.Error(ErrSyntax)
		return
	}
	optIn, noLoop := false, false
	for _, arg := range c.Args[3:] {
		switch {
		case foldEqual(arg, "OPTIN"):
			optIn = true
		case foldEqual(arg, "NOLOOP"):
			noLoop = true
		case foldEqual(arg, "OPTOUT"), foldEqual(arg, "BCAST"), foldEqual(arg, "PREFIX"), foldEqual(arg, "REDIRECT"):
			c.W.Error(errTracking)
			return
		default:
			c.W.Error(ErrSyntax)
			return
		}
	}
	if on && !optIn {
		c.W.Error(errTracking)
		return
	}
	c.Conn.Tracking, c.Conn.NoLoop = on, on && noLoop
	c.W.OK()
}

func clientTrackingInfo(c *ConnCtx) {
	flags := []string{"off"}
	if c.Conn.Tracking {
		flags = []string{"on", "optin"}
		if c.Conn.NoLoop {
			flags = append(flags, "noloop")
		}
	}
	c.W.Map(3)
	c.W.BulkString("flags")
	c.W.Set(len(flags))
	for _, flag := range flags {
		c.W.BulkString(flag)
	}
	c.W.BulkString("redirect")
	c.W.Int(redirect(c.Conn.Tracking))
	c.W.BulkString("prefixes")
	c.W.Array(0)
}

// redirect is the connection that messages of changes go to: 0 is this one, -1
// says that there are none.
func redirect(tracking bool) int64 {
	if tracking {
		return 0
	}
	return -1
}

func clientCaching(c *ConnCtx) {
	switch {
	case foldEqual(c.Args[2], "YES"):
		c.W.Error(errCaching)
	case foldEqual(c.Args[2], "NO"):
		c.W.OK()
	default:
		c.W.Error(ErrSyntax)
	}
}
