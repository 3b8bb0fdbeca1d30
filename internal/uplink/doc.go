// Package uplink carries summaries up and directives down between tiers, over QUIC with mutual TLS.
//
// A Child keeps one session to every instance of its parent tier. In each session, the newest summary goes up as a
// datagram with the changes since the last snapshot that the parent confirmed. Snapshots go as streams, at most one
// in flight. The parent confirms each datagram, so that on a slow link a child skips summaries instead of queueing
// them. Directives come down as streams and the newest wins. A Parent can send queries to a child.
//
// The package decides which child may report which path (by the certificate, never by the payload), which of two
// sessions or summaries is newer, and when to reconnect. Position orders directives; JudgeDirective decides whether
// one may be put in force.
//
// Invariants: the package never decides when a summary is stale (capacity.SummaryTable does), never parses a spec or
// a query, and never lets a peer grow a queue, a map or a message without bound.
package uplink

//go:generate protoc -I uplinkpb --go_out=uplinkpb --go_opt=paths=source_relative uplinkpb/uplink.proto
