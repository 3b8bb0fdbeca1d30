package uplink

import (
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// sums count what went over one session, at either end.
type sums struct {
	deltas, snapshots, directives, passed atomic.Uint64
}

// Traffic is what went over one session, at the end that says so.
type Traffic struct {
	// Version of the protocol that both ends agreed on.
	Version uint32
	// RTT as QUIC measures it; zero while not connected.
	RTT time.Duration
	// Deltas and Snapshots that came up, and Directives that went down.
	Deltas, Snapshots, Directives uint64
	// Passed are messages that arrived and were passed over: overtaken by newer ones, without their snapshot, or more than
	// a child may send.
	Passed uint64
	// BytesIn and BytesOut are those of QUIC packets.
	BytesIn, BytesOut uint64
	// PacketsSent by this end, and of those the PacketsLost.
	PacketsSent, PacketsLost uint64
}

func (s *sums) traffic(conn *quic.Conn, version uint32) Traffic {
	q := conn.ConnectionStats()
	return Traffic{
		Version: version, RTT: q.SmoothedRTT,
		Deltas: s.deltas.Load(), Snapshots: s.snapshots.Load(), Directives: s.directives.Load(), Passed: s.passed.Load(),
		BytesIn: q.BytesReceived, BytesOut: q.BytesSent, PacketsSent: q.PacketsSent, PacketsLost: q.PacketsLost,
	}
}
