package sim

import (
	"time"

	"github.com/spillway-lb/spillway/geo"
)

// NetworkModel sets the round trips of the network. In the zero NetworkModel clients are 10 ms from their region's
// gateway, zones 0.5 ms, and regions at the RTT of their locations.
type NetworkModel struct {
	// AccessRTT is the round trip between clients and a gateway of their own region. Default 10ms.
	AccessRTT time.Duration
	// ZoneRTT is the round trip between a gateway and a zone of its region. Default 500us.
	ZoneRTT time.Duration
	// RegionRTT is the round trip between two regions, by name; nil: by their locations (geo.PriorRTT).
	RegionRTT func(a, b string) time.Duration
	// Loss is the fraction of packets between regions that are lost. A lost summary is not repeated; a request
	// arrives a retransmission later.
	Loss float64
}

// retransmitDelay is the delay of a retransmission: TCP's minimum timeout in Linux.
const retransmitDelay = int64(200 * time.Millisecond)

func (n *NetworkModel) accessRTT() int64 {
	if n.AccessRTT > 0 {
		return int64(n.AccessRTT)
	}
	return int64(10 * time.Millisecond)
}

// zoneDelay is the one-way delay between a gateway and a zone.
func (r *simulation) zoneDelay() int64 {
	if r.scenario.Network.ZoneRTT > 0 {
		return int64(r.scenario.Network.ZoneRTT) / 2
	}
	return int64(250 * time.Microsecond)
}

// regionRTT is the round trip between two regions.
func (r *simulation) regionRTT(a, b *regionState) int64 {
	switch {
	case a == b:
		return 0
	case r.scenario.Network.RegionRTT != nil:
		return int64(r.scenario.Network.RegionRTT(a.name, b.name))
	}
	return int64(geo.PriorRTT(a.location, b.location))
}

// datagramDelay is the delay of a datagram between two regions; false when it is lost.
func (r *simulation) datagramDelay(a, b *regionState) (late int64, ok bool) {
	if r.isPartitioned(a, b) || a != b && r.scenario.Network.Loss > 0 && r.networkRand.Float64() < r.scenario.Network.Loss {
		return 0, false
	}
	return r.regionRTT(a, b) / 2, true
}

// requestDelay is the delay of a request between two regions; false when they are disconnected.
func (r *simulation) requestDelay(a, b *regionState) (late int64, ok bool) {
	if r.isPartitioned(a, b) {
		return 0, false
	}
	late = r.regionRTT(a, b) / 2
	for tries := 0; r.scenario.Network.Loss > 0 && tries < 5 && r.networkRand.Float64() < r.scenario.Network.Loss; tries++ {
		late += retransmitDelay << tries
	}
	return late, true
}

// isPartitioned reports whether two regions are disconnected.
func (r *simulation) isPartitioned(a, b *regionState) bool {
	if a == b {
		return false
	}
	for i := range r.scenario.Faults {
		f := &r.scenario.Faults[i]
		if f.Kind != Partition || !r.activeFaults[i] {
			continue
		}
		if f.isolatesFrom(a.name, b.name) || f.isolatesFrom(b.name, a.name) {
			return true
		}
	}
	return false
}

// isolatesFrom reports whether the partition separates one from other.
func (f *Fault) isolatesFrom(one, other string) bool {
	return f.Region == one && (f.From == "" || f.From == other)
}

// isCutFromGlobalTier reports whether a region is disconnected from the whole global tier, including a node in the
// region itself.
func (r *simulation) isCutFromGlobalTier(reg *regionState) bool {
	for i := range r.scenario.Faults {
		if f := &r.scenario.Faults[i]; f.Kind == Partition && r.activeFaults[i] && f.Region == reg.name && f.From == globalTierName {
			return true
		}
	}
	return false
}

// globalTierName is the name of the global tier in faults.
const globalTierName = "global"
