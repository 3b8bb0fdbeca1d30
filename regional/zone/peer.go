package zone

import (
	"math/rand/v2"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
)

// peerVerdict is the best peer with its rank.
type peerVerdict struct {
	Verdict
	rank rank
}

// choosePeer returns the peer with the least seconds. When the region itself could serve (local), only peers that are
// surely well compete: fresh, and with headroom for the class.
func (v *View) choosePeer(q *Query, local bool, rng *rand.Rand, rec *explain.Record) (best peerVerdict, ok bool) {
	best.rank = out
	for i := range v.Peers {
		p := &v.Peers[i]
		r, s := p.price(q, local, rec)
		if r == out || r > best.rank || r == best.rank && s >= best.Seconds {
			continue
		}
		best.rank, best.Seconds, ok = r, s, true
		best.Path = capacity.Path{Region: p.Region}
	}
	if !ok {
		return best, false
	}
	for i := range v.Peers {
		if v.Peers[i].Region == best.Path.Region {
			g := v.Peers[i].gateway(q, rng)
			best.Peer, best.Endpoint = g.Name, g.Endpoint
		}
	}
	return best, true
}

// price ranks one peer and prices the query there, round trip included.
func (p *Peer) price(q *Query, local bool, rec *explain.Record) (rank, float64) {
	h := rec.Candidate(p.Region)
	if why := p.barred(q); why != "" {
		h.Drop(why)
		return out, 0
	}
	m, why := q.fits(p.Summary)
	if m == nil {
		h.Drop(why)
		return out, 0
	}
	rtt := p.RTT
	if rtt <= 0 {
		rtt = unknownRTT
	}
	h.Term("rtt", rtt.Seconds())
	s := rtt.Seconds() + q.seconds(m, capacity.Path{Region: p.Region}, p.State == capacity.Fresh, h)
	switch {
	case p.Drained || p.Summary.Draining:
		h.Drop(DropDraining)
		return out, 0
	case p.State == capacity.Lost:
		h.Drop(DropLost)
		return lost, s
	case local && p.State != capacity.Fresh:
		h.Drop(DropNotFresh)
		return out, 0
	case local && m.Headroom[q.Class] <= 0:
		h.Drop(DropNoHeadroom)
		return out, 0
	}
	return well, s
}

// barred says why the query may not go to the peer whatever its capacity; empty when it may.
func (p *Peer) barred(q *Query) string {
	switch {
	case q.Hops > 0:
		return DropHops
	case !q.Spill:
		return DropSpillForbidden
	case !q.permits(p.Residency):
		return DropResidency
	case p.Summary == nil:
		return DropNoNews
	}
	for i := range p.Gateways {
		if !q.excluded(p.Gateways[i].Endpoint) {
			return ""
		}
	}
	return DropExcluded
}

// gateway draws one of the peer's gateways that have not failed the query. There is one, or barred would have said so.
func (p *Peer) gateway(q *Query, rng *rand.Rand) PeerGateway {
	var chosen PeerGateway
	n := 0
	for _, g := range p.Gateways {
		if q.excluded(g.Endpoint) {
			continue
		}
		if n++; n == 1 || rng.IntN(n) == 0 {
			chosen = g
		}
	}
	return chosen
}
