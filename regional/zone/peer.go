package zone

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
)

// peerVerdict is the best peer with its rank, and the peer that would be the soonest if nothing held the request back.
type peerVerdict struct {
	Verdict
	rank rank
	held heldBack
}

// heldBack is a peer to which the request may not go, and why.
type heldBack struct {
	region, why string
	seconds     float64
}

// choosePeer returns the peer with the least seconds, or of several that are as good one by chance: gateways that all see
// the same peer with room do not all go there. When the region itself could serve (local), only peers that are surely
// well compete: fresh, with headroom for the class, and with budget left.
func (v *View) choosePeer(q *Query, local bool, now time.Time, rng *rand.Rand, rec *explain.Record) (best peerVerdict, ok bool) {
	best.rank = out
	at, whole, least := -1, 0.0, 0.0
	for i := range v.Peers {
		p := &v.Peers[i]
		r, c, held := p.price(q, local, now, rec)
		s := c.cost()
		if held != "" && (best.held.why == "" || s < best.held.seconds) {
			best.held = heldBack{p.Region, held, s}
		}
		if r == out || r > best.rank {
			continue
		}
		if r < best.rank || s < least-nearSeconds && s*nearShare < least {
			best.rank, whole, least = r, 0, s // clearly better than all before it
		} else if s > max(least+nearSeconds, least*nearShare) {
			continue
		}
		least = min(least, s)
		w := p.headroom(q)
		if whole += w; at < 0 || whole == w || rng.Float64()*whole < w {
			at, best.Seconds, best.Beside = i, c.first, c.beside
		}
	}
	if at < 0 {
		return best, false
	}
	p := &v.Peers[at]
	g := p.gateway(q, rng)
	best.Path, best.Peer, best.Endpoint = capacity.Path{Region: p.Region}, g.Name, g.Endpoint
	best.Rate, best.Cached = q.SpillShare*p.headroom(q), q.held(p.Summary, best.Path, p.State)
	return best, true
}

// headroom is the peer's for the query's model and class, in tokens/s, at least 1.
func (p *Peer) headroom(q *Query) float64 {
	if m := q.model(p.Summary); m != nil {
		return float64(max(m.Headroom[q.Class], 1))
	}
	return 1
}

// rtt is the round trip to the peer.
func (p *Peer) rtt() time.Duration {
	if p.RTT <= 0 {
		return unknownRTT
	}
	return p.RTT
}

// way is what the way to the peer adds to the time to the first token: a round trip, and one more where it is asked first.
func (p *Peer) way(q *Query) time.Duration {
	if q.Asks {
		return 2 * p.rtt()
	}
	return p.rtt()
}

// price ranks one peer and prices the query there, round trip included. held says why it may not be sent there although
// the peer could serve it.
func (p *Peer) price(q *Query, local bool, now time.Time, rec *explain.Record) (r rank, s price, held string) {
	h := rec.Candidate(p.Region)
	if p.Drained && (p.Summary == nil || len(p.Gateways) == 0) {
		h.Drop(DropDraining)
		return out, price{}, ""
	}
	if p.Summary == nil {
		h.Drop(DropNoNews)
		return out, price{}, ""
	}
	if len(p.Gateways) == 0 {
		h.Drop(DropUnreachable)
		return out, price{}, ""
	}
	if !p.reachable(q) {
		h.Drop(DropExcluded)
		return out, price{}, ""
	}
	m, why := q.fits(p.Summary)
	if m == nil {
		if p.Drained || p.Summary.Draining {
			why = DropDraining // its workers take nothing because of it
		}
		h.Drop(why)
		return out, price{}, ""
	}
	h.Term("rtt", p.way(q).Seconds())
	s = q.seconds(m, capacity.Path{Region: p.Region}, p.State == capacity.Fresh, h)
	s.first += p.way(q).Seconds()
	if p.Drained || p.Summary.Draining {
		h.Drop(DropDraining)
		return out, price{}, ""
	}
	if drop, held := p.barred(q); drop != "" {
		h.Drop(drop)
		return out, s, held
	}
	if local {
		if drop, held := p.doubtful(q, m, now); drop != "" {
			h.Drop(drop)
			return out, s, held
		}
	}
	if p.State == capacity.Lost {
		h.Drop(DropLost)
		return lost, s, ""
	}
	return well, s, ""
}

// barred says why the query may not go to the peer whatever its capacity; empty when it may.
func (p *Peer) barred(q *Query) (drop, held string) {
	switch {
	case q.Hops > 0:
		return DropHops, HeldHops
	case !q.Spill:
		return DropSpillForbidden, HeldOff
	case !q.permits(p):
		return DropResidency, HeldResidency
	case q.Barred == p.Region || q.Barred == BarAll:
		return DropBarred, HeldRefused
	}
	return "", ""
}

// doubtful says why a query that could be served at home does not go to the peer; empty when it may.
func (p *Peer) doubtful(q *Query, m *capacity.Model, now time.Time) (drop, held string) {
	switch {
	case p.State != capacity.Fresh && !p.Unheard:
		return DropNotFresh, HeldNotFresh
	case m.Headroom[q.Class] <= 0:
		return DropNoHeadroom, HeldNoHeadroom
	case q.Spills.paused(p.Region, q.Model, now):
		return DropRefused, HeldRefused
	case !q.Spills.grants(p.Region, q.Model, q.SpillShare*p.headroom(q), now):
		return DropBudget, HeldBudget
	}
	return "", ""
}

// reachable reports whether some gateway of the peer has not failed the query.
func (p *Peer) reachable(q *Query) bool {
	for i := range p.Gateways {
		if !q.excluded(p.Gateways[i].Endpoint) {
			return true
		}
	}
	return false
}

// gateway draws one of the peer's gateways that have not failed the query. There is one, or the peer is not reachable.
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
