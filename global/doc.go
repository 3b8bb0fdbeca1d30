// Package global is the global tier: it answers DNS queries and redirects, and the leader makes the steering plan.
//
// Server is one global node. It answers from one immutable nodeSnapshot: a snapshot.SteeringSnapshot with the agreed
// state and what DNS needs. A snapshotBuilder goroutine (snapshotbuilder.go) joins the capacity summaries of gateways,
// which arrive over the uplink (ingest.go), with the Raft state into the next one. A drain or an unreachable region is
// a mask in the snapshot and takes effect at once; the plan follows. Nodes exchange reports on which gateways they
// reach (package liveness): a region stays in a node's answers while any node reaches it, and only a majority removes
// it from the plan. Every node answers from its own snapshot, with or without a leader or a quorum.
//
// A spec can be staged in some regions first: the leader judges it by the outcomes that gateways report (rollout.go,
// package rollout). Where a service allows it, requests of clients that cannot follow a redirect are proxied to the
// same region (proxy.go).
//
// Package steer decides which region a client is sent to. An answer never waits for Raft, a gateway or a disk.
package global
