package session

import (
	"bytes"
	"errors"

	"github.com/stint-dev/stint/engine/store"
	"github.com/stint-dev/stint/server/command"
)

// pipeline is what has to be known of a pipeline, which is all that arrives until
// the replies to all of it are sent. Some clients send a whole pipeline again when
// its first reply is CLUSTERDOWN, and nothing of it must have been applied then.
type pipeline struct {
	applied bool   // something of it may have been applied
	cut     bool   // more of it may follow the batch at hand
	down    string // the error that all that is left of it gets, unrun
}

// errCut ends a connection whose pipeline was answered CLUSTERDOWN as far as it
// was read: what follows must not be run.
var errCut = errors.New("no decision could be made, and the rest of the pipeline must not be run")

// begin is called before the first command of what has arrived together. It is the
// beginning of a pipeline, unless the last batch was cut off from this.
func (p *pipeline) begin() { *p = pipeline{applied: p.applied && p.cut} }

// undecided appends the replies to a batch that was not decided.
func (s *Session) undecided(b *store.Batch) []byte {
	out := b.Out
	if b.Outcome == store.NotApplied {
		return s.notApplied(b, out)
	}
	s.server.Undecided.Unknown.Add(int64(len(b.Requests)))
	s.pipe.applied = true
	line := command.ErrIndeterminate(b.Why)
	for i := range b.Requests {
		out = s.appendFailure(out, b.Requests[i].Cmd, line)
	}
	return out
}

// notApplied appends the replies to a batch that surely was not applied: decisions
// are answered by the failure mode, all else by an error. After CLUSTERDOWN nothing
// of the pipeline is run; where it must not be said any more, because something of
// the pipeline may have been applied before, it is INDETERMINATE.
func (s *Session) notApplied(b *store.Batch, out []byte) []byte {
	f := &s.server.Fallback
	line := command.ErrDown(b.Why)
	if s.pipe.applied {
		line = command.ErrIndeterminate(b.Why)
	}
	for i := range b.Requests {
		r := b.Requests[i]
		s.server.Undecided.NotApplied.Add(1)
		if s.pipe.down == "" && f.Takes(r.Cmd) {
			out = f.Answer(r, b.Why, out)
			continue
		}
		f.Failed(b.Why)
		out = s.appendFailure(out, r.Cmd, line)
		if !s.pipe.applied {
			s.pipe.down = line
		}
	}
	return out
}

// appendFailure appends an error and counts it.
func (s *Session) appendFailure(out []byte, cmd int32, line string) []byte {
	before := len(out)
	out = appendError(out, line)
	s.server.Failed(cmd, out[before:])
	return out
}

// downBegin is how a reply begins that says CLUSTERDOWN.
var downBegin = []byte("-CLUSTERDOWN ")

// ranConn keeps the rule of pipelines for a command that is not the store's, whose
// reply is what out has from before on: those about the cluster may say CLUSTERDOWN
// too, or may have changed something.
func (s *Session) ranConn(cmd *command.Command, out []byte, before int) []byte {
	reply := out[before:]
	if !bytes.HasPrefix(reply, downBegin) {
		s.pipe.applied = s.pipe.applied || cmd.Flags&command.Admin != 0
		return out
	}
	why := string(bytes.TrimSuffix(reply[len(downBegin):], []byte("\r\n")))
	if s.pipe.applied {
		return appendError(out[:before], command.ErrIndeterminate(why))
	}
	s.pipe.down = "CLUSTERDOWN " + why
	return out
}
