package sim

import (
	"errors"
	"math/rand/v2"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/owner"
)

// agent is one instance of a zone's local tier.
type agent struct {
	at      int32 // in run.agents
	zone    *zone
	name    string
	lab     *local.Lab
	seats   []*seat // by the worker's place in the zone
	pumping bool
	down    bool
	deaths  int // causes of its death that last
	lives   uint64
	teller  teller
	kin     *owner.Zone // what it knows of the zone's other instances; nil where there are none
	heed    heed        // of what gateways say
}

// seat is a worker as one instance of its zone knows it.
type seat struct {
	at      int32 // in run.seats
	agent   *agent
	worker  *worker
	lab     *local.LabWorker
	looks   local.Looks
	decodes int // answers under way through this instance that have had their first token
}

// newAgent starts an instance of a zone for the first time.
func (r *run) newAgent(z *zone, name string) error {
	a := &agent{at: int32(len(r.agents)), zone: z, name: name}
	a.teller = teller{path: capacity.Path{Region: z.region.name, Zone: z.name, Instance: name}, endpoint: name, boot: 1}
	z.agents, r.agents = append(z.agents, a), append(r.agents, a)
	for _, w := range z.workers {
		s := &seat{at: int32(len(r.seats)), agent: a, worker: w}
		a.seats, r.seats = append(a.seats, s), append(r.seats, s)
	}
	if err := r.open(a); err != nil {
		return err
	}
	for _, s := range a.seats {
		r.agenda.add(event{at: r.scrapeAfter(s) + s.worker.warmed, kind: evScrape, who: s.at})
	}
	r.agenda.add(event{at: int64(local.PatrolEvery), kind: evPatrol, who: a.at})
	return nil
}

// open starts an instance, which knows nothing yet but its zone's workers.
func (r *run) open(a *agent) error {
	z, seed := a.zone, r.seedOf(a)
	a.lives++
	lab, err := local.NewLab(local.LabConfig{
		Region: z.region.name, Zone: z.name, Name: a.name, Policy: r.floors(), Spec: r.spec, Blank: r.blank,
		Seed: seed, PrefixIndex: r.index,
	})
	if err != nil {
		return err
	}
	a.lab, a.heed = lab, heed{}
	if a.kin = nil; len(a.seats) > 0 && r.shared(z) {
		a.kin = owner.New(a.name)
	}
	now := r.time(r.now)
	for _, s := range a.seats {
		w := s.worker
		s.looks, s.decodes = local.NewLooks(seed, w.name), 0
		if s.lab, err = lab.Add(w.declared, w.model, int64(w.engine.Limits().MaxModelLen), now); err != nil {
			return err
		}
	}
	lab.Seat(now)
	for _, s := range a.seats { // the first look, as when an Agent starts
		if s.worker.dead > 0 {
			continue
		}
		reading := s.worker.read(now)
		lab.Scraped(s.lab, &reading, nil, now)
	}
	return nil
}

// seedOf is that of an instance in its present life.
func (r *run) seedOf(a *agent) uint64 {
	return rand.New(rand.NewPCG(r.s.Seed, seedZone<<32|a.lives<<20|uint64(a.at))).Uint64()
}

// scrapeAfter is when a worker is looked at again.
func (r *run) scrapeAfter(s *seat) int64 { return r.now + int64(float64(r.scrape)*s.looks.Jitter()) }

// look reads a worker's page; what it says is booked when it is there.
func (r *run) look(at int32) {
	r.agenda.add(event{at: r.scrapeAfter(r.seats[at]), kind: evScrape, who: at})
	r.probe(at)
}

// errDeaf is what a look at a dead worker comes to.
var errDeaf = errors.New("connection refused")

func (r *run) probe(at int32) {
	s := r.seats[at]
	if s.agent.down {
		return
	}
	p := &engine.Reading{}
	if s.worker.dead == 0 {
		*p = s.worker.read(r.time(r.now))
	}
	if r.s.Staleness.Delay > 0 {
		r.agenda.add(event{at: r.now + int64(r.s.Staleness.Delay), kind: evRead, who: at, what: p})
	} else {
		r.book(s, p)
	}
}

func (r *run) book(s *seat, reading *engine.Reading) {
	if s.agent.down {
		return
	}
	now := r.time(r.now)
	var failed error
	if reading.At.IsZero() {
		failed = errDeaf
	} else {
		reading.At, reading.LoadAt = now, now // a reader cannot know how old it is
	}
	s.agent.lab.Scraped(s.lab, reading, failed, now)
	r.settle(s.agent)
}

func (r *run) patrol(a *agent) {
	r.agenda.add(event{at: r.now + int64(local.PatrolEvery), kind: evPatrol, who: a.at})
	if a.down {
		return
	}
	now := r.time(r.now)
	for _, s := range a.seats {
		if s.decodes > 0 && s.worker.stalled == 0 && s.worker.dead == 0 {
			a.lab.Emits(s.lab, now)
		}
	}
	a.lab.Patrol(now)
	r.settle(a)
}

func (r *run) pump(a *agent) {
	a.pumping = false
	if a.down {
		return
	}
	waiting := a.lab.Pump(r.time(r.now))
	r.settle(a)
	if waiting {
		r.poke(a)
	}
}

// poke sees to it that an instance at which somebody waits is looked at again.
func (r *run) poke(a *agent) {
	if !a.pumping {
		a.pumping = true
		r.agenda.add(event{at: r.now + int64(local.PumpEvery), kind: evPump, who: a.at})
	}
}
