package steer

import (
	"math"
	"net/netip"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// Query is one client asking for one service.
type Query struct {
	Service int    // index in Spec.Services
	Cell    int32  // -1 when its place is unknown
	Key     uint64 // of the client's network, see Key
	// Drained regions take nothing new while another is well. Lost ones are worse than drained ones. Barred ones are
	// never picked: residency is law, not preference.
	Drained, Lost, Barred Set
}

// Choice is the region picked. Region is -1 only when every region is barred.
type Choice struct {
	Region int
	Reason Reason
	// Split says that another client of the same cell may be sent elsewhere, so the answer holds for the key's network only.
	Split bool
}

// Reason says which rule picked.
type Reason uint8

// The reasons.
const (
	None    Reason = iota
	Nearest        // cheapest by RTT, wait, bias and price
	Planned        // by the plan's row for the cell
	Weight         // by the service's declared weights
	Order          // first of the failover order
	Spread         // place unknown: spread by capacity
	Drained        // every region that is alive is drained: one of those
	Lost           // every region is lost: answered all the same
	Canary         // one of the part of clients that the canary region takes
	Pinned         // by the plan's row for the cell, which names the client's network: it asks for much
)

var reasonNames = [...]string{"none", "nearest", "planned", "weight", "order", "spread", "all_drained", "all_lost", "canary", "pinned"}

// String is the stable word for metrics and answers.
func (r Reason) String() string { return reasonNames[r] }

// Networks of clients that are always answered alike.
const (
	KeyBits4 = capacity.NetworkBits4
	KeyBits6 = capacity.NetworkBits6
)

// Key hashes the network of a client: its /24 or /48.
func Key(a netip.Addr) uint64 {
	return mix(capacity.NetworkNumber(a))
}

// Pick chooses a region. It allocates nothing.
func (t *Table) Pick(q *Query) Choice {
	st := &t.services[q.Service]
	may, override := st.candidates(q)
	if may.Empty() {
		return Choice{Region: -1}
	}
	split := st.narrow(q.Key, &may)
	var c Choice
	if st.canary >= 0 && may.Has(st.canary) && !may.only(st.canary) {
		c, split = st.tryOut(t.geo, q, &may), true
	} else {
		c = st.choose(t.geo, q, &may)
	}
	c.Split = c.Split || split
	if override != None {
		c.Reason = override
	}
	return c
}

// tryOut sends a fixed part of the networks to the canary and keeps all others away from it.
func (st *serviceTable) tryOut(g *Geography, q *Query, may *Set) Choice {
	if draw(q.Key^st.seed, canarySalt) < st.trial {
		return Choice{st.canary, Canary, true}
	}
	var only, none Set
	only.Add(st.canary)
	rest := may.Without(&only, &none)
	return st.choose(g, q, &rest)
}

// narrow keeps networks out of regions on their way back, all but the part that those may get by now. It reports
// whether another network could be treated otherwise.
func (st *serviceTable) narrow(key uint64, may *Set) (split bool) {
	for r, part := range st.ramp {
		if part == 0 || !may.Has(r) || may.only(r) {
			continue
		}
		split = true
		if draw(key^st.seed, rampSalt+uint64(r)) >= float64(part)/256 {
			var only, none Set
			only.Add(r)
			*may = may.Without(&only, &none)
		}
	}
	return split
}

// Salts keep draws for different purposes apart from each other and from rendezvous.
const (
	canarySalt = 1 << 32
	rampSalt   = 1 << 33
)

// draw is a number in (0,1) that depends on nothing but its arguments.
func draw(key, salt uint64) float64 {
	return (float64(mix(key^mix(salt+1))>>11) + 0.5) / (1 << 53)
}

// candidates is the best set that is not empty: well, else drained but alive, else lost, else both.
func (st *serviceTable) candidates(q *Query) (Set, Reason) {
	var none Set
	open := st.allowed.Without(&q.Barred, &none)
	if s := open.Without(&q.Drained, &q.Lost); !s.Empty() {
		return s, None
	}
	if s := open.Without(&q.Lost, &none); !s.Empty() {
		return s, Drained
	}
	if s := open.Without(&q.Drained, &none); !s.Empty() {
		return s, Lost
	}
	return open, Lost
}

func (st *serviceTable) choose(g *Geography, q *Query, may *Set) Choice {
	switch rtt := g.Row(q.Cell); {
	case st.mode == byWeight:
		if r, split := st.rendezvous(st.spread, q.Key, may); r >= 0 {
			return Choice{r, Weight, split}
		}
		return Choice{st.nearest(rtt, may, false), Nearest, false}
	case st.mode == byOrder:
		if st.pilot && !st.without.Meets(may) {
			if r, split := st.rendezvous(st.spread, q.Key, may); r >= 0 {
				return Choice{r, Order, split}
			}
		}
		return Choice{st.first(may), Order, false}
	case rtt == nil:
		if r, split := st.rendezvous(st.spread, q.Key, may); r >= 0 {
			return Choice{r, Spread, split}
		}
		return Choice{st.nearest(nil, may, true), Spread, false}
	case st.mode == byPlace:
		return Choice{st.nearest(rtt, may, false), Nearest, false}
	}
	if !st.without.Meets(may) {
		row := st.row(q.Cell)
		if r := row.pinned(q.Key); r >= 0 && may.Has(r) {
			return Choice{r, Pinned, true}
		}
		if r, split := st.rendezvous(row.shares, q.Key, may); r >= 0 {
			return Choice{r, Planned, split || len(row.pins) > 0}
		}
	}
	return Choice{st.nearest(g.Row(q.Cell), may, true), Nearest, false}
}

func (st *serviceTable) first(may *Set) int {
	for _, r := range st.order {
		if may.Has(int(r)) {
			return int(r)
		}
	}
	return -1
}

// nearest is the cheapest of the set. Without a place every RTT counts as equal; without load only RTT and bias count.
func (st *serviceTable) nearest(rtt []float32, may *Set, load bool) int {
	best, least := -1, math.Inf(1)
	for r := range st.bias {
		if !may.Has(r) {
			continue
		}
		c := st.bias[r]
		if rtt != nil {
			c += float64(rtt[r]) * st.stretch[r]
		}
		if load {
			c += st.wait[r] + st.price[r]
		}
		if c < least {
			best, least = r, c
		} else if best < 0 { // whatever its RTT is said to be, it is better than nobody
			best = r
		}
	}
	return best
}

// rendezvous picks by weighted rendezvous hashing: each region's score depends on nothing but the client, the region
// and its own weight, so only clients of the weight that changed move. split reports that more than one could win.
func (st *serviceTable) rendezvous(shares []Share, key uint64, may *Set) (region int, split bool) {
	region = -1
	least := math.Inf(1)
	for i := range shares {
		r := int(shares[i].Region)
		if !may.Has(r) {
			continue
		}
		split = region >= 0
		if v := score(key^st.seed, shares[i]); v < least {
			region, least = r, v
		}
	}
	return region, split
}

// score is what a region bids for a seeded key: the lowest wins.
func score(key uint64, s Share) float64 {
	return -math.Log(draw(key, uint64(s.Region))) / float64(s.Weight)
}

// mix is the finaliser of splitmix64 (Steele, Lea and Flood 2014): every input bit moves every output bit.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashString is FNV-1a, 64 bits.
func hashString(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
