package experiment_test

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// extendingShare is the fraction of resolvers that cache answers beyond their TTL (8.74 % of 8,524 measured ones do),
// and minExtension the minimum time.
const (
	extendingShare = 0.0874
	minExtension   = 2 * time.Minute
)

// simResolver is a resolver of one region's clients. It resolves again when its answer expires, whether or not a
// client asks then, as resolvers with many clients do.
type simResolver struct {
	client      netip.Addr
	demandShare float64 // of its region's demand
	extraHold   time.Duration
	answer      netip.Addr
	region      int
	expiresAt   time.Time
	moves       int
}

// resolverSet is the resolvers of all regions.
type resolverSet struct {
	fleet      *fleet.InMemory
	rng        *rand.Rand
	places     [][]simResolver
	badAnswers int // invalid answers
}

func newResolverSet(p *fleet.InMemory, o *stepOptions, seed uint64) *resolverSet {
	c := &resolverSet{fleet: p, rng: rand.New(rand.NewPCG(seed, 0xc20d))}
	for r := range regionCount {
		n := o.Resolvers
		if r > 0 {
			n /= 10 // they have little demand
		}
		place, sum := make([]simResolver, n), 0.0
		for i := range place {
			x := &place[i]
			x.client, x.demandShare, x.region = fleet.ClientAddr(r, i), 1, -1
			if o.Zipf {
				x.demandShare = 1 / float64(i+1)
			}
			if o.ExtendTTL && c.rng.Float64() < extendingShare {
				x.extraHold = minExtension
			}
			sum += x.demandShare
		}
		for i := range place {
			place[i].demandShare /= sum
		}
		c.rng.Shuffle(n, func(i, j int) {
			place[i].demandShare, place[j].demandShare = place[j].demandShare, place[i].demandShare
		})
		c.places = append(c.places, place)
	}
	return c
}

// refreshExpired lets the resolvers with expired answers query again. Initially the answers have random remaining
// lifetimes.
func (c *resolverSet) refreshExpired(now time.Time) {
	for r := range c.places {
		for i := range c.places[r] {
			if x := &c.places[r][i]; !now.Before(x.expiresAt) {
				c.askServer(x, now)
			}
		}
	}
}

func (c *resolverSet) askServer(x *simResolver, now time.Time) {
	a, err := c.fleet.QueryDNS(c.rng.IntN(len(c.fleet.Globals)), x.client, fleet.ServiceName)
	to := c.fleet.RegionOf(a.Addr)
	if err != nil || to < 0 {
		c.badAnswers++
		x.expiresAt = now.Add(time.Second)
		return
	}
	life := max(a.TTL, x.extraHold)
	if x.region < 0 {
		life = time.Duration(c.rng.Int64N(int64(life)))
	} else if x.region != to {
		x.moves++
	}
	x.answer, x.region, x.expiresAt = a.Addr, to, now.Add(life)
}

// demandByRegion is the part of each region's demand that its resolvers' answers send to each region.
func (c *resolverSet) demandByRegion() (out [regionCount][regionCount]float64) {
	for r := range c.places {
		for i := range c.places[r] {
			if x := &c.places[r][i]; x.region >= 0 {
				out[r][x.region] += x.demandShare
			}
		}
	}
	return out
}

// drawResolver draws a resolver of a region, weighted by demand.
func (c *resolverSet) drawResolver(place int, rng *rand.Rand) *simResolver {
	at := rng.Float64()
	for i := range c.places[place] {
		if at -= c.places[place][i].demandShare; at < 0 {
			return &c.places[place][i]
		}
	}
	return &c.places[place][0]
}

// movedShares is the fraction of the first region's resolvers that have changed their region, and the fraction that
// did so more than once.
func (c *resolverSet) movedShares() (once, again float64) {
	for i := range c.places[0] {
		switch x := &c.places[0][i]; {
		case x.moves > 1:
			again++
			fallthrough
		case x.moves > 0:
			once++
		}
	}
	n := float64(len(c.places[0]))
	return once / n, again / n
}

// resetMoves resets the counts of moves.
func (c *resolverSet) resetMoves() {
	for i := range c.places[0] {
		c.places[0][i].moves = 0
	}
}
