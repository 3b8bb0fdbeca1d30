package uplink

import (
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// sessionCounters counts the traffic of one session, at either end.
type sessionCounters struct {
	deltas, snapshots, directives, skipped atomic.Uint64
}

// Traffic is the traffic of one session, as counted by one end.
type Traffic struct {
	// Version of the protocol that both ends agreed on.
	Version uint32
	// RTT as QUIC measures it; zero while not connected.
	RTT time.Duration
	// Deltas and Snapshots that came up, and Directives that went down.
	Deltas, Snapshots, Directives uint64
	// Skipped are messages that arrived and were not used: superseded by newer ones, without their snapshot, or above
	// the message bound.
	Skipped uint64
	// BytesIn and BytesOut are those of QUIC packets.
	BytesIn, BytesOut uint64
	// PacketsSent by this end, and of those the PacketsLost.
	PacketsSent, PacketsLost uint64
}

func (s *sessionCounters) readTraffic(conn *quic.Conn, version uint32) Traffic {
	q := conn.ConnectionStats()
	return Traffic{
		Version: version, RTT: q.SmoothedRTT,
		Deltas: s.deltas.Load(), Snapshots: s.snapshots.Load(), Directives: s.directives.Load(), Skipped: s.skipped.Load(),
		BytesIn: q.BytesReceived, BytesOut: q.BytesSent, PacketsSent: q.PacketsSent, PacketsLost: q.PacketsLost,
	}
}
