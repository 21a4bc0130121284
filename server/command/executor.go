package command

import (
	"sync"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/store"
)

// Executor runs store commands by the table: it is what a store.Store is made
// with. The zero value is ready; any number of goroutines may use one.
type Executor struct {
	// A Ctx goes through a function value and so cannot stay on the stack:
	// the pool spares an allocation for each command.
	pool sync.Pool
}

var _ store.Executor = (*Executor)(nil)

// Execute runs r on tx and appends its reply to out. r.Cmd is the Index of a
// store command that Find returned for r.Args; for anything else the reply is
// an error.
func (e *Executor) Execute(tx *engine.Tx, r *store.Request, out []byte) []byte {
	c, _ := e.pool.Get().(*Ctx)
	if c == nil {
		c = new(Ctx)
	}
	c.Tx, c.Args, c.DB = tx, r.Args, r.DB
	c.W.B, c.W.Proto = out, r.Proto
	if uint(r.Cmd) < uint(len(commands.all)) && commands.all[r.Cmd].Run != nil {
		tx.Select(r.DB)
		commands.all[r.Cmd].Run(c)
	} else {
		c.W.Error(ErrInternal)
	}
	out = c.W.B
	// Nothing of the batch may be kept alive by the pool.
	*c = Ctx{}
	e.pool.Put(c)
	return out
}
