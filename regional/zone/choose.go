package zone

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
)

// Two costs are as good as equal when they differ by less than 5 ms or by a tenth: predictions are no better, and a
// random choice between two keeps gateways that know the same from choosing the same.
const (
	nearSeconds = 0.005
	nearShare   = 1.1
)

// rank orders candidates before their cost does.
type rank uint8

const (
	well rank = iota
	cold      // nothing is ready, and the zone can load the model or wake a worker
	draining
	lost
	out // cannot serve the query at all
)

// Choose returns where q should go, or ok=false when nothing may take it. It reads only its arguments: the same inputs
// give the same verdict. It allocates nothing when rec is nil.
//
// Order: instances that are well against a fresh peer, by seconds; then peers against instances that must load the model
// first, by seconds; then draining ones; then what is lost, since a silent child may still serve and an answer from nobody is
// certain to be none.
func Choose(q *Query, v *View, now time.Time, rng *rand.Rand, rec *explain.Record) (Verdict, bool) {
	local, localOK, best := v.chooseLocal(q, rng, rec)
	peer, peerOK := v.choosePeer(q, localOK && best == well && !v.Drained, now, rng, rec)
	verdict, ok := settle(q, v, local, localOK, best, peer, peerOK)
	verdict.explainHeld(q, &peer, ok && localOK && best == well, peerOK)
	if !ok {
		rec.Choose("", ReasonNoneServes)
		return verdict, false
	}
	if rec.On() {
		rec.Policy = "predictive"
		name := verdict.Path.String()
		rec.Choose(name, verdict.Reason)
		if verdict.Spilled() {
			rec.Note("forwarded to gateway " + verdict.Peer)
		}
	}
	return verdict, true
}

// settle weighs the best local against the best peer.
func settle(q *Query, v *View, local Verdict, localOK bool, best rank, peer peerVerdict, peerOK bool) (Verdict, bool) {
	switch {
	case localOK && best == well && !v.Drained:
		if left := local.worth(q); peerOK && peer.rank == well && left > peer.Cost() {
			peer.Reason = ReasonPeerSooner
			peer.Within = max(left-peer.rtt(v), 0.001)
			return peer.Verdict, true
		}
		return local, true
	case peerOK && peer.rank == well && localOK && best == cold && !v.Drained && local.Cost()+q.Margin.Seconds() < peer.Cost():
		local.Reason = ReasonCold // loading here is sooner than the queue there
		return local, true
	case peerOK && peer.rank == well:
		peer.Reason = ReasonNoLocal
		if v.Drained {
			peer.Reason = ReasonRegionDrain
		}
		return peer.Verdict, true
	case localOK:
		switch best {
		case well:
		case cold:
			local.Reason = ReasonCold
		default:
			local.Reason = ReasonLastResort
		}
		return local, true
	case peerOK:
		peer.Reason = ReasonLastResort
		return peer.Verdict, true
	}
	return Verdict{}, false
}

// explainHeld says why a request that stays would have been sooner at a peer, if it would.
func (v *Verdict) explainHeld(q *Query, peer *peerVerdict, home, peerOK bool) {
	if v.Spilled() {
		return
	}
	held := peer.held
	if peerOK && peer.rank == well && (held.why == "" || peer.Cost() <= held.seconds) {
		held = heldBack{peer.Path.Region, HeldMargin, peer.Cost()}
	}
	if held.why == "" || home && v.Cost() <= held.seconds || home && held.why != HeldMargin && v.worth(q) <= held.seconds {
		return
	}
	v.Held, v.HeldBy = held.why, held.region
}

// rtt is the round trip to the peer that was chosen, in seconds.
func (p *peerVerdict) rtt(v *View) float64 {
	for i := range v.Peers {
		if v.Peers[i].Region == p.Path.Region {
			return v.Peers[i].rtt().Seconds()
		}
	}
	return unknownRTT.Seconds()
}

// chooseLocal returns the best instance of the best rank that has one.
func (v *View) chooseLocal(q *Query, rng *rand.Rand, rec *explain.Record) (Verdict, bool, rank) {
	best, least := out, 0.0
	for i := range v.Locals {
		r, p := v.Locals[i].price(q, rec)
		if r == out {
			continue
		}
		s := p.cost()
		if r < best || r == best && s < least {
			best, least = r, s
		}
	}
	if best == out {
		return Verdict{}, false, out
	}
	i, p, near := v.pickNear(q, best, least, rng)
	l := &v.Locals[i]
	reason := ReasonSoonest
	if near > 1 {
		reason = ReasonNearEqual
	}
	return Verdict{Path: l.Summary.Path, Endpoint: l.Summary.Endpoint, Reason: reason, Seconds: p.first, Beside: p.beside, Cached: q.held(l.Summary, l.Summary.Path, l.State)}, true, best
}

// pickNear draws one of the candidates that are as good as the best, by the zones' weights; of two drawn the better one
// is returned: power of two choices. A new session goes where its hash says, so that all gateways send it to the same.
func (v *View) pickNear(q *Query, best rank, least float64, rng *rand.Rand) (at int, cost price, near int) {
	limit := max(least+nearSeconds, least*nearShare)
	first, second := draw{score: -1}, draw{score: -1}
	for i := range v.Locals {
		r, p := v.Locals[i].price(q, nil)
		if r != best || p.cost() > limit {
			continue
		}
		near++
		d := draw{at: i, price: p}
		if w := v.Locals[i].weight(); q.Session != 0 {
			d.score = rendezvous(q.Session, v.Locals[i].Summary.Path, w)
		} else {
			d.score = w / -math.Log(1-rng.Float64()) // the greatest of these are a draw by weight without replacement
		}
		switch {
		case d.score > first.score:
			first, second = d, first
		case d.score > second.score:
			second = d
		}
	}
	if q.Session == 0 && near > 1 && second.cost() < first.cost() {
		first = second
	}
	return first.at, first.price, near
}

// draw is a candidate that was drawn.
type draw struct {
	price
	at    int
	score float64
}

// rendezvous is a candidate's score for a session, by weight (Schindelhauer and Schomaker); over 0.
func rendezvous(session uint64, p capacity.Path, weight float64) float64 {
	h := session
	for _, part := range [...]string{p.Zone, p.Instance} {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 0x100000001b3
		}
		h = (h ^ 0xff) * 0x100000001b3
	}
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	u := (float64(h>>11) + 0.5) / (1 << 53) // over 0 and under 1
	return weight / -math.Log(u)
}

func (l *Local) weight() float64 {
	if l.Weight > 0 {
		return l.Weight
	}
	return 1
}

// price ranks one instance and prices the query there.
func (l *Local) price(q *Query, rec *explain.Record) (rank, price) {
	var h explain.Handle
	if rec.On() {
		h = rec.Candidate(l.Summary.Path.String())
	}
	if q.excluded(l.Summary.Endpoint) {
		h.Drop(DropExcluded)
		return out, price{}
	}
	m, why := q.fits(l.Summary)
	if m == nil {
		if s, ok := q.coldSeconds(l); ok {
			h.Term("load", s)
			return cold, price{first: s}
		}
		if l.Drained || l.Summary.Draining {
			why = DropDraining // its workers take nothing because of it
		}
		h.Drop(why)
		return out, price{}
	}
	s := q.seconds(m, l.Summary.Path, l.State == capacity.Fresh, h)
	switch {
	case l.State == capacity.Lost:
		h.Drop(DropLost)
		return lost, s
	case l.Drained || l.Summary.Draining:
		h.Drop(DropDraining)
		return draining, s
	}
	return well, s
}
