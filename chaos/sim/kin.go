package sim

import (
	"time"

	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/owner"
)

// How the instances of a zone divide its workers, as an Agent does (local/siblings.go): what they do is local/owner's, and what
// carries it is here. Each looks at the division every quarter of a second and asks the others every half whether they are there;
// a gateway says who is live as soon as that has changed, and every five seconds.
const (
	divideEvery  = local.DivideEvery
	visitEvery   = 2 // divisions
	directsEvery = int64(5 * time.Second)
)

// heed is what an instance has in force of what gateways say.
type heed struct{ index, epoch uint64 }

// shared says whether a zone has several instances.
func (r *run) shared(z *zone) bool {
	f := r.s.Fleet.region(z.region.name)
	return f != nil && f.zone(z.name).Locals > 1
}

// divide has an instance look at who serves which worker.
func (r *run) divide(a *agent, n int) {
	r.agenda.add(event{at: r.now + int64(divideEvery), kind: evDivide, who: a.at, what: n + 1})
	if a.down || a.kin == nil {
		return
	}
	now := r.time(r.now)
	if n%visitEvery == 0 {
		for _, m := range a.kin.Siblings() {
			if b := r.ends[m.Endpoint]; b != nil && !b.down {
				version, workers := b.lab.Reached()
				a.kin.Met(m.Name, version, workers, now)
			}
		}
	}
	d := a.kin.Divide(now)
	a.lab.Divide(&d, now)
	r.settle(a)
}

// directs says whether gateways have anything to tell their zones.
func (r *run) directs() bool {
	for i := range r.s.Fleet.Regions {
		for k := range r.s.Fleet.Regions[i].Zones {
			if r.s.Fleet.Regions[i].Zones[k].Locals > 1 {
				return true
			}
		}
	}
	for i := range r.s.Faults {
		if r.s.Faults[i].Kind == Drain {
			return true
		}
	}
	return false
}

// command has a gateway tell its zones what is in force and who of them is live, when that has changed or it is time.
func (r *run) command(g *gateway) {
	if !r.tells || g.down {
		return
	}
	news := g.lab.News()
	if news == g.told.news && r.now < g.told.again {
		return
	}
	g.told.news, g.told.again = news, r.now+directsEvery
	for _, z := range g.region.zones {
		for _, a := range z.agents {
			r.agenda.add(event{at: r.now + r.inside(), kind: evTold, who: a.at, what: word{g, g.lab.Directive(a.teller.path)}})
		}
	}
}

// word is a directive on its way to a zone.
type word struct {
	from *gateway
	what *uplink.Directive
}

// told has an instance take what a gateway says.
func (r *run) told(a *agent, w word) {
	d := w.what
	if a.down || d == nil {
		return
	}
	now := r.time(r.now)
	if a.kin != nil {
		var members []owner.Member
		for _, l := range d.Locals {
			members = append(members, owner.Member{Name: l.Name, Endpoint: l.Endpoint})
		}
		a.kin.Told(w.from.name, members, now)
	}
	if d.Index > a.heed.index || d.Index == a.heed.index && d.PlanEpoch > a.heed.epoch {
		a.heed = heed{d.Index, d.PlanEpoch}
		a.lab.Obey(d, r.spec, now)
		r.settle(a)
	}
}
