// Package relay forwards one HTTP request to one place and streams its answer back, for the regional and the local tier
// alike, and holds the Spillway-* headers that the tiers speak to each other.
//
// It decides when an answer has begun: the head of a success is held until the first byte of its body, so that a death
// before it can still be retried elsewhere. It never retries, never chooses where to send, and never reads a prompt.
package relay
