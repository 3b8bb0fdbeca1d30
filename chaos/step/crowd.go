package step

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/spillway-lb/spillway/chaos/world"
)

// extenders is the part of resolvers that keep answers for longer than they may (8.74 % of 8,524 measured ones do), and
// extension how long they keep them at least.
const (
	extenders = 0.0874
	extension = 2 * time.Minute
)

// resolver is one of a place: it asks again when its answer has run out, whether or not its clients ask just then, as
// those of many clients do.
type resolver struct {
	client netip.Addr
	part   float64 // of its place's demand
	hold   time.Duration
	to     netip.Addr
	region int
	until  time.Time
	moves  int
}

// crowd is the resolvers of all places.
type crowd struct {
	planet *world.Planet
	rng    *rand.Rand
	places [][]resolver
	wrong  int // answers that were none
}

func newCrowd(p *world.Planet, o *Options, seed uint64) *crowd {
	c := &crowd{planet: p, rng: rand.New(rand.NewPCG(seed, 0xc20d))}
	for r := range regions {
		n := o.Resolvers
		if r > 0 {
			n /= 10 // they only stand by
		}
		place, sum := make([]resolver, n), 0.0
		for i := range place {
			x := &place[i]
			x.client, x.part, x.region = world.Client(r, i), 1, -1
			if o.Zipf {
				x.part = 1 / float64(i+1)
			}
			if o.Extend && c.rng.Float64() < extenders {
				x.hold = extension
			}
			sum += x.part
		}
		for i := range place {
			place[i].part /= sum
		}
		c.rng.Shuffle(n, func(i, j int) { place[i].part, place[j].part = place[j].part, place[i].part })
		c.places = append(c.places, place)
	}
	return c
}

// refresh has the resolvers ask whose answer has run out. At first each gets an answer that is some way into its life.
func (c *crowd) refresh(now time.Time) {
	for r := range c.places {
		for i := range c.places[r] {
			if x := &c.places[r][i]; !now.Before(x.until) {
				c.ask(x, now)
			}
		}
	}
}

func (c *crowd) ask(x *resolver, now time.Time) {
	a, err := c.planet.Ask(c.rng.IntN(len(c.planet.Globals)), x.client, world.Service)
	to := c.planet.RegionOf(a.Addr)
	if err != nil || to < 0 {
		c.wrong++
		x.until = now.Add(time.Second)
		return
	}
	life := max(a.TTL, x.hold)
	if x.region < 0 {
		life = time.Duration(c.rng.Int64N(int64(life)))
	} else if x.region != to {
		x.moves++
	}
	x.to, x.region, x.until = a.Addr, to, now.Add(life)
}

// sends is the part of each place's demand that its resolvers' answers send to each region.
func (c *crowd) sends() (out [regions][regions]float64) {
	for r := range c.places {
		for i := range c.places[r] {
			if x := &c.places[r][i]; x.region >= 0 {
				out[r][x.region] += x.part
			}
		}
	}
	return out
}

// draw is a resolver of a place, each as often as its part says.
func (c *crowd) draw(place int, rng *rand.Rand) *resolver {
	at := rng.Float64()
	for i := range c.places[place] {
		if at -= c.places[place][i].part; at < 0 {
			return &c.places[place][i]
		}
	}
	return &c.places[place][0]
}

// moved is the part of the first place's resolvers that have changed their region, and the part that have more than once.
func (c *crowd) moved() (once, again float64) {
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

// settle forgets who has moved so far.
func (c *crowd) settle() {
	for i := range c.places[0] {
		c.places[0][i].moves = 0
	}
}
