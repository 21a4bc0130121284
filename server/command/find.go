package command

// Finder finds commands by name and remembers the last one, which is most often
// the next one too. It belongs to one connection; the zero value is ready.
type Finder struct {
	name [maxRemembered]byte // as it was sent last
	len  uint8               // 0: nothing is remembered
	last *Command            // no container
}

// maxRemembered is the length of the longest name that is remembered.
const maxRemembered = 15

// Find is the function Find, usually faster.
func (f *Finder) Find(args [][]byte) (*Command, string) {
	if len(args) > 0 && f.len > 0 && string(args[0]) == string(f.name[:f.len]) && f.last.takes(len(args)) {
		return f.last, ""
	}
	c, line := Find(args)
	if c != nil && c.outer == nil && c.Sub == nil && len(args[0]) <= maxRemembered {
		f.len = uint8(copy(f.name[:], args[0]))
		f.last = c
	}
	return c, line
}

// Find returns the command that args call, which may be empty, or nil and the
// line of the error to reply: unknown, or of wrong arity. It does not allocate
// unless there is an error to tell.
func Find(args [][]byte) (*Command, string) {
	if len(args) == 0 {
		return nil, ErrUnknown(args)
	}
	c := commands.find(args[0])
	if c == nil {
		return nil, ErrUnknown(args)
	}
	if c.Sub != nil && (len(args) > 1 || c.Conn == nil) {
		if len(args) == 1 {
			return nil, ErrArity(c.full)
		}
		outer := c
		if c = outer.sub(args[1]); c == nil {
			return nil, ErrUnknownSub(outer.Name, args[1])
		}
	}
	if !c.takes(len(args)) {
		return nil, ErrArity(c.full)
	}
	return c, ""
}
