// Package consensus keeps the state that every global node must agree on: the operator's spec with its history, the steering
// plan, drains, and the keys that sign redirect tickets and the DNS zone. It is hashicorp/raft over mutual TLS, with the
// rules of the state in one pure function, apply.
//
// It decides the order of writes, and whether a write fits the state it was based on: each is a compare-and-swap, and the
// leader judges it before it is proposed; what it did not judge is judged when it is applied, so that no code path skips
// the check. Any node takes a write and
// hands it to the leader. Reads are local and never wait: State is the last applied snapshot, and a node that restarts
// without a quorum has its last known committed state back. Beside the log, voters tell each other what Config.Aside says,
// over the same mutual TLS: soft state that is never written down.
//
// A spec may be on trial first (stage.go), in some regions beside the one in force or everywhere: the stage, how much of
// its window has passed and how it ends are agreed like everything else, so that a change of leaders loses nothing.
//
// It never holds telemetry, never looks into a spec or a plan (Config brings the checks), never reads a clock or draws a
// random number while applying, never panics on a bad or unknown entry, and never deletes a plan that is in use.
package consensus
