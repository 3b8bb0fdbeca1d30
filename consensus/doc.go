// Package consensus replicates the state that all global nodes share: the operator's spec with its history, the
// steering plan, drains, the rollout of a staged spec, and the keys that sign redirect tickets and the DNS zone. It
// runs hashicorp/raft over mutual TLS. The rules of the state are one pure function, applyEntry.
//
// Node is one member of the cluster, State the last snapshot applied on it, Config its settings. A write goes to any
// node, which forwards it to the leader. Each write is a compare-and-swap: the leader checks it before proposing it,
// and nodes check it again on apply if the leader did not. Reads are local and never wait. A node that restarts
// without a quorum restores its last known committed state.
//
// A spec may be staged first (rollout.go), in some regions or in all. The stage, the elapsed part of its window and its
// end are replicated too, so a change of leader loses nothing. Outside the log, members exchange Config.GossipMessage
// over the same mutual TLS: soft state that is not stored.
//
// Invariants: the package never holds telemetry and never parses a spec or a plan (Config supplies the checks).
// applyEntry never reads a clock or a random number, never panics on a bad or unknown entry, and never deletes a plan
// that is in use.
package consensus
