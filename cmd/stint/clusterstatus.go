package main

import (
	"fmt"
	"strings"
)

// raftNode is a node as INFO tells it.
type raftNode map[string]string

// raftNodes are the nodes of the cluster, by INFO.
func (r *statusReport) raftNodes() (nodes []raftNode) {
	for i := 0; ; i++ {
		line, ok := r.Info[fmt.Sprintf("raft_server%d", i)]
		if !ok {
			return nodes
		}
		n := raftNode{}
		for _, field := range strings.Split(line, ",") {
			name, value, _ := strings.Cut(field, "=")
			n[name] = value
		}
		nodes = append(nodes, n)
	}
}

// judgeCluster finds the problems of a cluster.
func (r *statusReport) judgeCluster() {
	if r.Info["raft_state"] == "" {
		return
	}
	if r.Info["raft_serving"] == "0" {
		r.problem("cluster", "no decision can be made through this node: %s", printable(r.Info["raft_why_not_serving"]))
	}
	if r.Info["raft_state"] == "leader" {
		for _, n := range r.raftNodes() {
			if n["alive"] == "0" {
				r.problem("node", "node %s at %s does not answer the leader", printable(n["node"]), printable(n["raft"]))
			}
		}
	}
	if ms := number(r.Info, "raft_clock_refused_ms"); ms > 0 {
		r.problem("clock", "the wall clock of this node is %d ms ahead of the cluster's time and is not used: set it", ms)
	}
	if n := number(r.Info, "raft_snapshots_failing"); n > 0 {
		r.problem("snapshot", "%d snapshots have failed in a row: the log grows; the log of the server says why", n)
	}
}

// clusterRows describe the cluster for people, nothing where there is none.
func (r *statusReport) clusterRows() (rows []string) {
	nodes := r.raftNodes()
	if r.Info["raft_state"] == "" || len(nodes) == 1 && nodes[0]["raft"] == "local" {
		return nil
	}
	leader := r.Info["raft_leader_id"]
	if leader == "" {
		leader = "not known"
	}
	rows = append(rows, printable(fmt.Sprintf("node %s is %s in term %s; the leader is %s; log to %s, applied to %s",
		r.Info["raft_node_id"], r.Info["raft_state"], r.Info["raft_term"], leader, r.Info["raft_last_log_index"], r.Info["raft_applied_index"])))
	for _, n := range nodes {
		line := fmt.Sprintf("%s: %s, Raft %s, clients %s", n["node"], n["role"], n["raft"], n["clients"])
		if n["contact_ms"] != "-1" {
			state := "alive"
			if n["alive"] == "0" {
				state = "NOT ALIVE"
			}
			line += fmt.Sprintf(", %s, %s entries behind", state, n["behind"])
		}
		rows = append(rows, printable(line))
	}
	return rows
}
