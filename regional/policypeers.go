package regional

import (
	"slices"
	"strconv"

	"github.com/spillway-lb/spillway/internal/uplink"
)

// peerRegionOf returns the peer region of an endpoint; empty when there is none.
func (s *gatewayPolicy) peerRegionOf(endpoint string) string {
	if s == nil {
		return ""
	}
	for i := range s.directive.Peers {
		if slices.ContainsFunc(s.directive.Peers[i].Gateways, func(x uplink.PeerGateway) bool { return x.Endpoint == endpoint }) {
			return s.directive.Peers[i].Region
		}
	}
	return ""
}

// describePeerRTTs describes the assumed round-trip times to peers for the status, in the order of the directive.
func (s *gatewayPolicy) describePeerRTTs() (out []string) {
	for i := range s.directive.Peers {
		p := &s.directive.Peers[i]
		what := "prior by distance, nothing measured"
		if p.RTTSamples > 0 {
			what = "measured, n=" + strconv.FormatInt(p.RTTSamples, 10)
		}
		out = append(out, p.Region+": rtt "+formatMillis(p.RTT)+" ms, "+what)
	}
	return out
}
