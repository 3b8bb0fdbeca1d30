// Package uplink carries statements up and directives down between tiers, over QUIC with mutual TLS.
//
// A Child keeps one session to every instance of its parent tier. In each, the newest statement goes up as a datagram
// holding what changed since the last snapshot that the parent confirmed; snapshots go as streams, at most one in flight;
// the parent answers each datagram with what it heard, so that on a slow link a child skips statements instead of
// queueing them. Directives come down as streams, newest wins, and a Parent can ask a child a question.
//
// It decides who may speak for which path (the certificate says, never the payload), which of two sessions or
// statements is the newer, and when to reconnect. It never judges how old is too old (package capacity's Book does), never
// looks into a spec or a question, and never lets a peer grow a queue, a map or a message without bound.
package uplink

//go:generate protoc -I uplinkpb --go_out=uplinkpb --go_opt=paths=source_relative uplinkpb/uplink.proto
