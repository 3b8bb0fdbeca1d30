package sim

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global"
	"github.com/spillway-lb/spillway/global/steer"
)

// node is one node of the global tier. It is gone when its region is, and hears what the network lets through.
type node struct {
	at     int32 // among the planet's
	region *region
	lab    *global.Lab
	epoch  uint64 // of the plan that it goes by
	deaths int    // causes of its own death that last
}

// nodesMost is how many nodes there are where nothing is said of them.
const nodesMost = 3

// name is that of the region where the node stands: there is one node to a region.
func (n *node) name() string { return n.region.name }

// newNodes puts a node into each region that is to have one.
func (r *run) newNodes() (out []*node) {
	var places []geo.Place
	for _, reg := range r.regions {
		places = append(places, reg.place)
	}
	where := r.s.Steering.Nodes
	if len(where) == 0 {
		for _, reg := range r.regions[:min(nodesMost, len(r.regions))] {
			where = append(where, reg.name)
		}
	}
	for i, name := range where {
		at := slices.IndexFunc(r.regions, func(reg *region) bool { return reg.name == name }) // check has seen that there is one
		lab := global.NewLab(global.LabConfig{Name: name, Voters: where, Spec: r.spec, Clients: places}, r.time(0))
		out = append(out, &node{at: int32(i), region: r.regions[at], lab: lab})
	}
	return out
}

// up says whether a node runs.
func (p *planet) up(n *node) bool { return p.deaths == 0 && n.deaths == 0 && !n.region.down }

// reaches says whether a region and a node that runs reach each other.
func (r *run) reaches(reg *region, n *node) bool {
	return r.planet.up(n) && !r.severed(reg) && !r.cutOff(reg, n.region)
}

// meet says whether two nodes reach each other.
func (r *run) meet(a, b *node) bool {
	return a == b || r.planet.up(a) && r.planet.up(b) && !r.cutOff(a.region, b.region)
}

// leader is who leads the global tier; nil when nobody does. Where elections take no time that is the first node that reaches a
// majority. Where they do, who leads goes on while it reaches one, and the next begins so much later.
func (r *run) leader() *node {
	p, takes := r.planet, int64(r.s.Steering.Election)
	if takes == 0 {
		return r.candidate()
	}
	switch {
	case p.reigns == nil && !p.elected: // the run begins with a leader
		p.reigns, p.elected = r.candidate(), true
	case p.reigns == nil || !r.leads(p.reigns):
		p.reigns, p.from = r.candidate(), r.now+takes
	}
	if r.now < p.from {
		return nil
	}
	return p.reigns
}

// candidate is the first node that reaches a majority; nil when none does.
func (r *run) candidate() *node {
	for _, n := range r.planet.nodes {
		if r.leads(n) {
			return n
		}
	}
	return nil
}

// leads says whether a node reaches a majority.
func (r *run) leads(n *node) bool {
	p, met := r.planet, 0
	for _, o := range p.nodes {
		if p.up(n) && r.meet(n, o) {
			met++
		}
	}
	return 2*met > len(p.nodes)
}

// nearestNode is the one that a region's resolvers ask; nil when they reach none.
func (r *run) nearestNode(reg *region) (best *node) {
	for _, n := range r.planet.nodes {
		if r.reaches(reg, n) && (best == nil || r.rtt(reg, n.region) < r.rtt(reg, best.region)) {
			best = n
		}
	}
	return best
}

// testify has every node tell the others whom it hears.
func (r *run) testify() {
	r.agenda.add(event{at: r.now + int64(global.TestifyEvery), kind: evTestify})
	now := r.time(r.now)
	for _, n := range r.planet.nodes {
		if !r.planet.up(n) {
			continue
		}
		t := &testimony{from: n.name(), body: n.lab.Testimony(now)}
		for _, o := range r.planet.nodes {
			if o != n && r.meet(n, o) {
				if late, ok := r.wan(n.region, o.region); ok {
					r.agenda.add(event{at: r.now + late, kind: evWitness, who: o.at, what: t})
				}
			}
		}
	}
}

// testimony is what a node says of whom it hears, on its way to another.
type testimony struct {
	from string
	body []byte
}

func (r *run) witness(n *node, t *testimony) {
	if r.planet.up(n) {
		n.lab.Witness(t.from, t.body, r.time(r.now))
	}
}

// agreed is the plan of an epoch.
type agreed struct {
	plan  *steer.Plan
	epoch uint64
}

// solve has the leader plan.
func (r *run) solve() {
	p := r.planet
	r.agenda.add(event{at: r.now + p.interval, kind: evPlan})
	n := r.leader()
	if n == nil || n.epoch < p.agreed.epoch { // a new one first catches up
		return
	}
	if plan := n.lab.Plan(r.time(r.now)); plan != nil {
		r.out.Plans++
		r.agenda.add(event{at: r.now + agreeing, kind: evAdopt, what: plan})
	}
}

// adopt agrees on a plan, if there is still a majority to do so.
func (r *run) adopt(plan *steer.Plan) {
	if r.leader() == nil {
		return
	}
	p := r.planet
	p.agreed = agreed{plan, p.agreed.epoch + 1}
	r.spread(r.time(r.now))
}

// spread puts the agreed plan in force at every node that the leader reaches and that goes by an older one.
func (r *run) spread(now time.Time) {
	p := r.planet
	lead := r.leader()
	if lead == nil {
		return
	}
	for _, n := range p.nodes {
		if n.epoch < p.agreed.epoch && r.meet(lead, n) {
			n.lab.Adopt(p.agreed.plan, p.agreed.epoch, now)
			n.epoch = p.agreed.epoch
		}
	}
}
