// Package cluster replicates one keyspace over several nodes with Raft.
//
// A Group is one node's part of it, and a store.Store: whoever has a batch of
// commands gives it to Run on any node. The leader runs it above its committed
// state, at one time of one clock, and puts what it changed, its effects, into
// the log; when the entry is committed every node applies it, and only then the
// replies go out. A batch that changes nothing writes nothing: the leader makes
// sure that it still is the leader, and answers. Other nodes forward batches.
//
// The rules that make this right, and what is lost when, are in docs/cluster.md.
// There are no globals: several Groups can live in one process, and a single
// voter without a port is how one node is strict.
//
// This package knows no command and speaks to no client: commands are run by
// the store.Executor it is given.
package cluster
