package consensus

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

// logDeduplicator drops the lines that raft repeats while a peer is down, and detects when the peer is back: a
// successful dial ends the suppression.
type logDeduplicator struct {
	nodeNames map[string]string // address to node name
	repeats   telemetry.LogThrottle
}

// allowLine reports whether a line is to be written, and how many equal lines about the same peer were dropped before
// it.
func (e *logDeduplicator) allowLine(msg string, args []any) (leftOut int, ok bool) {
	return e.repeats.AllowLine(msg, e.findPeer(args), time.Now())
}

// findPeer returns the peer that a line is about, by name if known; empty if the line names no peer.
func (e *logDeduplicator) findPeer(args []any) string {
	for _, a := range args {
		switch a := a.(type) {
		case raft.Server:
			return string(a.ID)
		case raft.ServerID:
			return string(a)
		case raft.ServerAddress:
			return e.nodeName(string(a))
		}
	}
	return ""
}

func (e *logDeduplicator) nodeName(addr string) string {
	if n, ok := e.nodeNames[addr]; ok {
		return n
	}
	return addr
}

// logPeerBack logs once that a peer answers again, if its failure was logged.
func (l hcLogger) logPeerBack(addr string) {
	if l.dedup == nil {
		return
	}
	peer := l.dedup.nodeName(addr)
	if left, ok := l.dedup.repeats.ResolveSubject(peer); ok {
		l.logger.Info("raft peer is back", telemetry.KeyPeer, peer, telemetry.KeySuppressed, left)
	}
}
