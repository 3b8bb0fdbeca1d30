package sim

import (
	"time"

	"github.com/spillway-lb/spillway/geo"
)

// Network is how far things are from each other. The zero Network has clients 10 ms from their region's gateway, zones
// half a millisecond, and regions as far from each other as their places say.
type Network struct {
	// Access is the round trip between clients and a gateway of their own region. Default 10ms.
	Access time.Duration
	// Inside is the round trip between a gateway and a zone of its region. Default 500us.
	Inside time.Duration
	// Between is the round trip between two regions, by name; nil: by their places (geo.RTT).
	Between func(a, b string) time.Duration
	// Loss is the part of packets between regions that is lost. A statement that is lost is lost; a request comes a
	// retransmission later.
	Loss float64
}

// resend is how long after a packet that was lost the next one leaves: TCP's least timeout as Linux has it.
const resend = int64(200 * time.Millisecond)

func (n *Network) access() int64 {
	if n.Access > 0 {
		return int64(n.Access)
	}
	return int64(10 * time.Millisecond)
}

// inside is the way between a gateway and a zone.
func (r *run) inside() int64 {
	if r.s.Network.Inside > 0 {
		return int64(r.s.Network.Inside) / 2
	}
	return int64(250 * time.Microsecond)
}

// rtt is the round trip between two regions.
func (r *run) rtt(a, b *region) int64 {
	switch {
	case a == b:
		return 0
	case r.s.Network.Between != nil:
		return int64(r.s.Network.Between(a.name, b.name))
	}
	return int64(geo.RTT(a.place, b.place))
}

// wan is how long a datagram takes between two regions; false when it is lost.
func (r *run) wan(a, b *region) (late int64, ok bool) {
	if r.cutOff(a, b) || a != b && r.s.Network.Loss > 0 && r.chance.Float64() < r.s.Network.Loss {
		return 0, false
	}
	return r.rtt(a, b) / 2, true
}

// way is how long a request takes between two regions; false when they are cut off from each other.
func (r *run) way(a, b *region) (late int64, ok bool) {
	if r.cutOff(a, b) {
		return 0, false
	}
	late = r.rtt(a, b) / 2
	for tries := 0; r.s.Network.Loss > 0 && tries < 5 && r.chance.Float64() < r.s.Network.Loss; tries++ {
		late += resend << tries
	}
	return late, true
}

// cutOff says whether a partition stands between two regions.
func (r *run) cutOff(a, b *region) bool {
	if a == b {
		return false
	}
	for i := range r.s.Faults {
		f := &r.s.Faults[i]
		if f.Kind != Partition || !r.broken[i] {
			continue
		}
		if f.touches(a.name, b.name) || f.touches(b.name, a.name) {
			return true
		}
	}
	return false
}

// touches says that the partition has one on its side, and the other not.
func (f *Fault) touches(one, other string) bool {
	return f.Region == one && (f.From == "" || f.From == other)
}

// severed says whether a region is cut off from the whole global tier, a node in the region itself included.
func (r *run) severed(reg *region) bool {
	for i := range r.s.Faults {
		if f := &r.s.Faults[i]; f.Kind == Partition && r.broken[i] && f.Region == reg.name && f.From == globalTier {
			return true
		}
	}
	return false
}

// globalTier is the name of the global tier in faults.
const globalTier = "global"
