package regional

import (
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/zone"
)

// peerBasis is what a directive and the spec say of one peer region, made ready for the views of as long as they hold.
type peerBasis struct {
	at       int // in the directive's peers
	region   *spec.Region
	gateways []zone.PeerGateway // those that can be connected to; views share it
}

// readPeers makes the peers of a state ready. Only regions that the spec lists are peers.
func (s *state) readPeers(home string) {
	s.spoken = map[string]bool{}
	for i := range s.directive.Peers {
		p := &s.directive.Peers[i]
		for _, x := range p.Gateways {
			s.spoken[x.Endpoint] = true
		}
		if s.spec == nil || p.Region == home {
			continue
		}
		if r := s.spec.Region(p.Region); r != nil {
			b := peerBasis{at: i, region: r, gateways: make([]zone.PeerGateway, 0, len(p.Gateways))}
			for _, x := range p.Gateways {
				if x.Endpoint != "" {
					b.gateways = append(b.gateways, zone.PeerGateway(x))
				}
			}
			s.peers = append(s.peers, b)
		}
	}
}

// speaks says whether an endpoint is that of a peer's gateway that the global tier hears from.
func (s *state) speaks(endpoint string) bool { return s != nil && s.spoken[endpoint] }
