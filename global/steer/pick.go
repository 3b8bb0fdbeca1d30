package steer

import (
	"math"
	"net/netip"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// PickQuery is one client's query for one service.
type PickQuery struct {
	Service int    // index in Spec.Services
	Cell    int32  // -1 when its location is unknown
	Key     uint64 // of the client's network, see NetworkKey
	// Drained regions get nothing new while another is eligible. Unavailable ones rank below drained ones. Excluded
	// ones are never picked: they would violate residency rules.
	Drained, Unavailable, Excluded RegionSet
	// DrainRemaining is the part of the client networks that a gradual drain leaves to each region, in 256ths; 0:
	// all. nil: no gradual drain.
	DrainRemaining []uint8
}

// Choice is the region picked. Region is -1 only when every region is excluded.
type Choice struct {
	Region int
	Reason PickReason
	// Split reports that another client of the same cell may be sent elsewhere, so the answer is valid for the key's
	// network only.
	Split bool
}

// Prefix lengths of the client networks that always get the same answer.
const (
	KeyBits4 = capacity.NetworkBitsIPv4
	KeyBits6 = capacity.NetworkBitsIPv6
)

// NetworkKey hashes the network of a client: its /24 or /48.
func NetworkKey(a netip.Addr) uint64 {
	return mixBits(capacity.NetworkNumber(a))
}

// PickRegion chooses a region. It allocates nothing.
func (t *Table) PickRegion(q *PickQuery) Choice {
	st := &t.services[q.Service]
	may, override := st.eligibleRegions(q)
	if may.IsEmpty() {
		return Choice{Region: -1}
	}
	split := st.thinClients(q, &may)
	var c Choice
	if st.canary >= 0 && may.Has(st.canary) && !may.isOnly(st.canary) {
		c, split = st.pickWithCanary(t.geo, q, &may), true
	} else {
		c = st.chooseRegion(t.geo, q, &may)
	}
	c.Split = c.Split || split
	if override != ReasonNone {
		c.Reason = override
	}
	return c
}

// pickWithCanary sends a fixed fraction of the networks to the canary and keeps all others away from it.
func (st *serviceTable) pickWithCanary(g *Geography, q *PickQuery, may *RegionSet) Choice {
	if uniformHash(q.Key^st.seed, canarySalt) < st.canaryShare {
		return Choice{st.canary, ReasonCanary, true}
	}
	var only, none RegionSet
	only.Add(st.canary)
	rest := may.Without(&only, &none)
	return st.chooseRegion(g, q, &rest)
}

// thinClients removes returning regions and regions with a gradual drain from may, except for the fraction of
// networks that they may get now. As the fraction changes, networks move in one direction only. It reports whether
// another network could be treated differently.
func (st *serviceTable) thinClients(q *PickQuery, may *RegionSet) (split bool) {
	for _, parts := range [...][]uint8{st.ramp, q.DrainRemaining} {
		for r, part := range parts {
			if part == 0 || !may.Has(r) || may.isOnly(r) {
				continue
			}
			split = true
			if uniformHash(q.Key^st.seed, rampSalt+uint64(r)) >= float64(part)/256 {
				var only, none RegionSet
				only.Add(r)
				*may = may.Without(&only, &none)
			}
		}
	}
	return split
}

// Salts make draws for different purposes independent of each other and of rendezvous hashing.
const (
	canarySalt = 1 << 32
	rampSalt   = 1 << 33
)

// uniformHash is a number in (0,1) that depends only on its arguments.
func uniformHash(key, salt uint64) float64 {
	return (float64(mixBits(key^mixBits(salt+1))>>11) + 0.5) / (1 << 53)
}

// eligibleRegions is the first set that is not empty: healthy; drained but available; unavailable; both.
func (st *serviceTable) eligibleRegions(q *PickQuery) (RegionSet, PickReason) {
	var none RegionSet
	open := st.allowed.Without(&q.Excluded, &none)
	if s := open.Without(&q.Drained, &q.Unavailable); !s.IsEmpty() {
		return s, ReasonNone
	}
	if s := open.Without(&q.Unavailable, &none); !s.IsEmpty() {
		return s, ReasonAllDrained
	}
	if s := open.Without(&q.Drained, &none); !s.IsEmpty() {
		return s, ReasonAllUnavailable
	}
	return open, ReasonAllUnavailable
}

func (st *serviceTable) chooseRegion(g *Geography, q *PickQuery, may *RegionSet) Choice {
	switch rtt := g.RTTRow(q.Cell); {
	case st.mode == modeWeighted:
		if r, split := st.rendezvousRegion(st.spread, q.Key, may); r >= 0 {
			return Choice{r, ReasonWeight, split}
		}
		return Choice{st.cheapestRegion(rtt, may, false), ReasonNearest, false}
	case st.mode == modeFailover:
		if st.pilotLight && !st.without.Intersects(may) {
			if r, split := st.rendezvousRegion(st.spread, q.Key, may); r >= 0 {
				return Choice{r, ReasonOrder, split}
			}
		}
		return Choice{st.firstInOrder(may), ReasonOrder, false}
	case rtt == nil:
		if r, split := st.rendezvousRegion(st.spread, q.Key, may); r >= 0 {
			return Choice{r, ReasonSpread, split}
		}
		return Choice{st.cheapestRegion(nil, may, true), ReasonSpread, false}
	case st.mode == modeGeo:
		return Choice{st.cheapestRegion(rtt, may, false), ReasonNearest, false}
	}
	if !st.without.Intersects(may) {
		row := st.findRow(q.Cell)
		if r := pinnedRegion(row.pins, q.Key); r >= 0 && may.Has(r) {
			return Choice{r, ReasonPinned, true}
		}
		if r, split := st.rendezvousRegion(row.shares, q.Key, may); r >= 0 {
			return Choice{r, ReasonPlanned, split || len(row.pins) > 0}
		}
	}
	return Choice{st.cheapestRegion(g.RTTRow(q.Cell), may, true), ReasonNearest, false}
}

func (st *serviceTable) firstInOrder(may *RegionSet) int {
	for _, r := range st.order {
		if may.Has(int(r)) {
			return int(r)
		}
	}
	return -1
}

// cheapestRegion is the cheapest region of the set. Without a location all RTTs count as equal; without load only RTT
// and bias count.
func (st *serviceTable) cheapestRegion(rtt []float32, may *RegionSet, load bool) int {
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
		} else if best < 0 { // even an invalid RTT is better than no region
			best = r
		}
	}
	return best
}

// rendezvousRegion picks by weighted rendezvous hashing: each region's score depends only on the client, the region
// and its own weight, so only clients of the changed weight move. split reports that more than one region could win.
func (st *serviceTable) rendezvousRegion(shares []RegionShare, key uint64, may *RegionSet) (region int, split bool) {
	region = -1
	least := math.Inf(1)
	for i := range shares {
		r := int(shares[i].Region)
		if !may.Has(r) {
			continue
		}
		split = region >= 0
		if v := rendezvousScore(key^st.seed, shares[i]); v < least {
			region, least = r, v
		}
	}
	return region, split
}

// rendezvousScore is a region's score for a seeded key: the lowest wins.
func rendezvousScore(key uint64, s RegionShare) float64 {
	return -math.Log(uniformHash(key, uint64(s.Region))) / float64(s.Weight)
}

// mixBits is the finalizer of splitmix64 (Steele, Lea and Flood 2014): every input bit affects every output bit.
func mixBits(x uint64) uint64 {
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
