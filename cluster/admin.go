package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stint-dev/stint/cluster/internal/port"
)

// adminError is a refusal in a sentence, with what kind it is.
type adminError struct {
	Text    string `json:"text"`
	NoLead  bool   `json:"no_leader,omitempty"`
	Unclear bool   `json:"unknown,omitempty"`
}

func (e *adminError) Error() string { return e.Text }

// NotLeader tells that nobody could be asked: it can be tried again.
func (e *adminError) NotLeader() bool { return e.NoLead }

// Unknown tells that it may have been done, or may still be.
func (e *adminError) Unknown() bool { return e.Unclear }

var (
	errNotReady error = &adminError{Text: "this node does not take part in a cluster yet", NoLead: true}
	errNoLeader error = &adminError{Text: whyNoLeader, NoLead: true}
	errNotDone  error = &adminError{Text: whyDeposed, NoLead: true}
)

// command is a change of the membership, for the leader.
type command struct {
	Do   string `json:"do"`
	ID   string `json:"id,omitempty"`
	Addr string `json:"addr,omitempty"`
}

const adminTimeout = 10 * time.Second

// Add has a node, by its name, taken in as a non-voter: it copies the state, and
// is promoted when it has caught up. It must be running, at its Raft address,
// with an empty folder.
func (g *Group) Add(id, addr string) error { return g.admin(command{"add", id, addr}) }

// Remove takes a node out of the cluster.
func (g *Group) Remove(id string) error { return g.admin(command{"remove", id, ""}) }

// Promote lets a node vote.
func (g *Group) Promote(id string) error { return g.admin(command{"promote", id, ""}) }

// Demote takes a node's vote; it goes on copying the state, and is not promoted
// until Promote.
func (g *Group) Demote(id string) error { return g.admin(command{"demote", id, ""}) }

// Transfer hands the leadership over to a node, or to whichever is most up to
// date.
func (g *Group) Transfer(id string) error { return g.admin(command{"transfer", id, ""}) }

// admin has the leader do a command, which may be this node.
func (g *Group) admin(c command) error {
	if !g.isReady() {
		return errNotReady
	}
	ctx, cancel := context.WithTimeout(g.ctx, adminTimeout)
	defer cancel()
	g.mu.Lock()
	r := g.route
	g.mu.Unlock()
	switch {
	case r.self:
		return g.obey(ctx, c)
	case r.peer == "":
		return errNoLeader
	}
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	reply, err := g.calls.Call(ctx, r.addr, string(r.peer), callAdmin, b)
	switch {
	case errors.Is(err, port.ErrNotSent):
		return &adminError{Text: "the leader cannot be reached: " + err.Error(), NoLead: true}
	case err != nil:
		return &adminError{Text: "the leader has not answered: " + err.Error(), Unclear: true}
	}
	return parseRefusal(reply)
}

// A refusal is sent as JSON, and nothing if there is none.
func appendRefusal(err error) []byte {
	if err == nil {
		return nil
	}
	e := new(adminError)
	if !errors.As(err, &e) {
		e = &adminError{Text: err.Error()}
	}
	b, _ := json.Marshal(e)
	return b
}

func parseRefusal(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	e := new(adminError)
	if err := json.Unmarshal(b, e); err != nil {
		return fmt.Errorf("the leader's answer cannot be read: %w", err)
	}
	return e
}

// obey does a command as the leader.
func (g *Group) obey(ctx context.Context, c command) error {
	if g.term.Load() == 0 {
		return errNoLeader
	}
	if c.Do == "add" {
		return g.invite(ctx, c.ID, c.Addr)
	}
	if c.Do == "transfer" {
		return g.transfer(ctx, c.ID)
	}
	if c.Do == "reset" {
		return g.order(ctx, entryReset, nil)
	}
	s, err := g.server(c.ID)
	if err != nil {
		return err
	}
	switch c.Do {
	case "remove":
		if s.Suffrage == raft.Voter && len(voters(g.raft.GetConfiguration().Configuration())) == 1 {
			return &adminError{Text: fmt.Sprintf("%s is the only voter: without it nothing can be decided", c.ID)}
		}
		if err := outcome(g.raft.RemoveServer(s.ID, 0, adminTimeout).Error()); err != nil {
			return err
		}
		g.acks.forget(func(id raft.ServerID) bool { return id != s.ID })
		return g.order(ctx, entryForget, []byte(s.ID))
	case "promote":
		if err := g.hold(ctx, s.ID, false); err != nil {
			return err
		}
		return outcome(g.raft.AddVoter(s.ID, s.Address, 0, adminTimeout).Error())
	case "demote":
		if s.Suffrage == raft.Voter && len(voters(g.raft.GetConfiguration().Configuration())) == 1 {
			return &adminError{Text: fmt.Sprintf("%s is the only voter: without it nothing can be decided", c.ID)}
		}
		if err := g.hold(ctx, s.ID, true); err != nil {
			return err
		}
		return outcome(g.raft.DemoteVoter(s.ID, 0, adminTimeout).Error())
	}
	return &adminError{Text: fmt.Sprintf("the leader does not know how to %q: do all nodes run the same version?", c.Do)}
}

// outcome words an error of Raft about a change of the membership.
func outcome(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return errNotDone
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown):
		return &adminError{Text: "the leadership was lost before the change was committed: look at RAFT SERVER LIST", Unclear: true}
	}
	return &adminError{Text: err.Error()}
}

// server finds a member by its name, or by its whole ID in Raft.
func (g *Group) server(id string) (raft.Server, error) {
	var names []string
	for _, s := range g.raft.GetConfiguration().Configuration().Servers {
		if string(s.ID) == id || nodeOf(string(s.ID)) == id {
			return s, nil
		}
		names = append(names, nodeOf(string(s.ID)))
	}
	return raft.Server{}, &adminError{Text: fmt.Sprintf("the cluster has no node %q: its nodes are %s", id, strings.Join(names, ", "))}
}

// transfer hands the leadership over.
func (g *Group) transfer(ctx context.Context, id string) error {
	var f raft.Future
	if id == "" {
		f = g.raft.LeadershipTransfer()
	} else {
		s, err := g.server(id)
		if err != nil {
			return err
		}
		if s.ID == g.id {
			return nil
		}
		if s.Suffrage != raft.Voter {
			return &adminError{Text: fmt.Sprintf("%s does not vote and cannot lead: see RAFT SERVER PROMOTE", id)}
		}
		f = g.raft.LeadershipTransferToServer(s.ID, s.Address)
	}
	failed := make(chan error, 1)
	go func() { failed <- f.Error() }()
	select {
	case err := <-failed:
		if err != nil {
			return &adminError{Text: "the leadership was not handed over: " + err.Error()}
		}
		return nil
	case <-ctx.Done():
		return &adminError{Text: "the leadership was not handed over in time", Unclear: true}
	}
}

// order has the proposer put an entry into the log that is not a batch's.
func (g *Group) order(ctx context.Context, kind entryKind, payload []byte) error {
	o := order{kind, payload, make(chan error, 1)}
	select {
	case g.orders <- o:
	case <-ctx.Done():
		return errNoLeader
	}
	select {
	case err := <-o.done:
		if errors.Is(err, errNotApplied) {
			return errNotDone
		}
		if err != nil {
			return &adminError{Text: "the leadership was lost before the change was committed", Unclear: true}
		}
		return nil
	case <-ctx.Done():
		return &adminError{Text: "the change was not committed in time", Unclear: true}
	}
}

// hold notes whether a member is to stay without a vote.
func (g *Group) hold(ctx context.Context, id raft.ServerID, on bool) error {
	m, _, _, _ := g.fsm.view()
	member, ok := m.Members[string(id)]
	if !ok {
		member = Member{ID: string(id), Node: nodeOf(string(id)), MaxLevel: 1}
	}
	if member.Hold == on {
		return nil
	}
	member.Hold = on
	return g.announceMember(ctx, member)
}

func (g *Group) announceMember(ctx context.Context, m Member) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return g.order(ctx, entryMember, b)
}
