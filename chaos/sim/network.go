package sim

import (
	"math/rand/v2"
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

// network is the delays and losses between the parts of the fleet.
type network struct {
	scenario *Scenario
	faults   *faultStates
	rand     *rand.Rand // of losses
}

func newNetwork(s *Scenario, faults *faultStates) *network {
	return &network{scenario: s, faults: faults, rand: rand.New(rand.NewPCG(s.Seed, seedWAN<<32))}
}

// zoneDelay is the one-way delay between a gateway and a zone.
func (nw *network) zoneDelay() int64 {
	if nw.scenario.Network.ZoneRTT > 0 {
		return int64(nw.scenario.Network.ZoneRTT) / 2
	}
	return int64(250 * time.Microsecond)
}

// regionRTT is the round trip between two regions.
func (nw *network) regionRTT(a, b *regionState) int64 {
	switch {
	case a == b:
		return 0
	case nw.scenario.Network.RegionRTT != nil:
		return int64(nw.scenario.Network.RegionRTT(a.name, b.name))
	}
	return int64(geo.PriorRTT(a.location, b.location))
}

// datagramDelay is the delay of a datagram between two regions; false when it is lost.
func (nw *network) datagramDelay(a, b *regionState, what Traffic) (late int64, ok bool) {
	if nw.faults.isPartitioned(a, b, what) || a != b && nw.scenario.Network.Loss > 0 && nw.rand.Float64() < nw.scenario.Network.Loss {
		return 0, false
	}
	return nw.regionRTT(a, b) / 2, true
}

// requestDelay is the delay of a request between two regions; false when they are disconnected.
func (nw *network) requestDelay(a, b *regionState) (late int64, ok bool) {
	if nw.faults.isPartitioned(a, b, RequestTraffic) {
		return 0, false
	}
	late = nw.regionRTT(a, b) / 2
	for tries := 0; nw.scenario.Network.Loss > 0 && tries < 5 && nw.rand.Float64() < nw.scenario.Network.Loss; tries++ {
		late += retransmitDelay << tries
	}
	return late, true
}

// responseDelay is the time of an answer from its worker to its client.
func (nw *network) responseDelay(x *simulatedRequest) int64 {
	if x.balancer != nil {
		return nw.zoneDelay() + x.accessDelay
	}
	if x.homeRequest == nil {
		return 0
	}
	late := nw.zoneDelay() + x.accessDelay
	if x.peerRequest != nil {
		late += nw.regionRTT(x.homeGateway.region, x.peerGateway.region) / 2
	}
	return late
}
