// Package global is the shell of the first tier: it answers DNS and redirects from one immutable View, keeps that View
// true, and, at the leader, makes the plan.
//
// Statements of gateways arrive over the uplink (ingest.go) and agreed state over Raft; one goroutine joins the two
// into the next View (keep.go). A drain, or the loss of a region, is a mask in the View and acts at once; the plan
// follows. Nodes tell each other which gateways they hear (witness.go): a region that one node has lost stays in its
// answers while another hears it, and only a majority takes it out of the plan. Every node answers from its own View
// whether or not there is a leader or a quorum.
//
// A spec may be on trial: the leader judges it by what gateways report (trial.go, package stage). Where a service allows
// it, requests of clients that cannot follow a redirect are passed on (proxy.go), as the redirect would have sent them.
//
// It decides nothing about where a client goes: that is package steer. It never makes an answer wait for Raft, a
// gateway or a disk.
package global
