// Package decision holds the log of decisions: a ring of bounded size with what a tier decided about recent requests, the
// costs that it compared, and how the attempts ended.
//
// A record is written from what the decider has computed for its choice, into memory that the ring has allocated before. The
// ring belongs to its decider and is single-threaded like it; readers get parts of it that no longer change.
//
// A record has no prompt, no key and no token.
package decision
