// Package zone decides which local instance of a region serves a request, and when a peer region should serve it
// instead.
//
// Every candidate is priced in predicted seconds to the first token: the wait behind what is already there, the prefill
// of what is not cached, the wait for room, and for a peer the round trip. To that comes, at a part of its length, by
// how much the request and the answers under way there make each other slower: an empty queue says little of a zone that is
// full of answers. What the gateway itself has sent and has not
// yet seen acknowledged is added from its Ledger, so that many requests between two summaries do not all see the same
// empty zone, and only for what has to be computed there. What a session had at its home counts as far as that home's answers
// have shown it to keep such things.
//
// It never sends anything, never queues, and never lets a request hop twice or leave the regions that its tenant's
// residency allows.
package zone
