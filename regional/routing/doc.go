// Package routing chooses the local instance of a region, or the peer region, that serves a request.
//
// A Router holds the routing state of one gateway. Each attempt of a request passes through Dispatch, RecordFirstByte
// and Finish. Dispatch predicts the cost of every candidate in seconds: the wait behind its work, the prefill of what is
// not cached, the wait for KV cache and slots, the round trip to a peer, and at a reduced weight the slowdown between
// the request and the responses in progress there. The in-flight ledger adds the requests that a candidate's summary
// does not count yet, so that many requests between two summaries do not all choose the same empty zone. A session's
// cached prompt counts as far as responses have shown that the child retains it.
//
// A request is forwarded between regions at most once, and only to regions that its tenant's residency allows.
package routing
