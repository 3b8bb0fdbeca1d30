// Package owner decides which of a zone's local instances serves which worker.
//
// All instances of a zone know all its workers and look at them; each worker is served, and its capacity reported, by one
// of the live instances, by rendezvous hashing: when an instance dies only its own workers move, and when it is back only
// they return. Who is live the gateways say, which hear the statements of all; where no gateway is heard, it is those of
// the last known that still answer each other.
//
// For a moment two instances may both take a worker for theirs: that is harmless, since each sees in its scrapes what
// the other has sent. A worker that nobody takes for his own is worse, so a doubt makes an owner and never unmakes one.
// The package never sends anything, and never looks at how busy an instance is.
package owner
