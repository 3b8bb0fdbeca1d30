package sim

import (
	"errors"
	"math/rand/v2"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/engine"
)

// zone is one instance of the local tier.
type zone struct {
	at      int32 // in run.zones
	region  *region
	name    string
	lab     *local.Lab
	workers []*worker
	pumping bool
	down    bool
	deaths  int // causes of its death that last
	lives   uint64
	teller  teller
}

// region is a place.
type region struct {
	at      int32
	name    string
	place   geo.Place
	zones   []*zone
	gateway *gateway
	down    bool
	deaths  int
}

// seats of the random streams, so that adding one thing to a scenario does not change the chance of another.
const (
	seedZone = iota + 1
	seedWorkers
	seedGateways
	seedWAN
)

func (r *run) newZone(reg *region, z *Zone) error {
	n := uint64(len(r.zones))
	out := &zone{at: int32(n), region: reg, name: z.Name}
	chance := rand.New(rand.NewPCG(r.s.Seed, seedWorkers<<32|n))
	for i := range z.Groups {
		g := &z.Groups[i]
		for range g.Count {
			w, err := r.newWorker(out, g, len(out.workers)+1, chance)
			if err != nil {
				return err
			}
			out.workers, r.workers = append(out.workers, w), append(r.workers, w)
		}
	}
	reg.zones, r.zones = append(reg.zones, out), append(r.zones, out)
	if err := r.open(out); err != nil {
		return err
	}
	for _, w := range out.workers {
		r.agenda.add(event{at: r.scrapeAfter(w), kind: evScrape, who: w.at})
	}
	r.agenda.add(event{at: int64(local.PatrolEvery), kind: evPatrol, who: out.at})
	return nil
}

// open starts a zone's instance, which knows nothing yet but its workers.
func (r *run) open(z *zone) error {
	seed := r.seedOf(z)
	z.lives++
	lab, err := local.NewLab(local.LabConfig{
		Region: z.region.name, Zone: z.name, Name: z.region.name + "-" + z.name, Policy: r.floors(), Spec: r.spec, Blank: r.blank,
		Seed: seed, PrefixIndex: r.index,
	})
	if err != nil {
		return err
	}
	z.lab = lab
	now := r.time(r.now)
	for _, w := range z.workers {
		w.looks = local.NewLooks(seed, w.name)
		if w.lab, err = lab.Add(w.declared, w.model, int64(w.engine.Limits().MaxModelLen), now); err != nil {
			return err
		}
	}
	lab.Seat(now)
	for _, w := range z.workers { // the first look, as when an Agent starts
		reading := w.read(now)
		lab.Scraped(w.lab, &reading, nil, now)
	}
	return nil
}

// seedOf is that of a zone's instance in its present life.
func (r *run) seedOf(z *zone) uint64 {
	return rand.New(rand.NewPCG(r.s.Seed, seedZone<<32|z.lives<<20|uint64(z.at))).Uint64()
}

// scrapeAfter is when a worker is looked at again.
func (r *run) scrapeAfter(w *worker) int64 { return r.now + int64(float64(r.scrape)*w.looks.Jitter()) }

// look reads a worker's page; what it says is booked when it is there.
func (r *run) look(w *worker) {
	r.agenda.add(event{at: r.scrapeAfter(w), kind: evScrape, who: w.at})
	r.probe(w)
}

// errDeaf is what a look at a dead worker comes to.
var errDeaf = errors.New("connection refused")

func (r *run) probe(w *worker) {
	if w.zone.down {
		return
	}
	p := &engine.Reading{}
	if w.dead == 0 {
		*p = w.read(r.time(r.now))
	}
	if r.s.Staleness.Delay > 0 {
		r.agenda.add(event{at: r.now + int64(r.s.Staleness.Delay), kind: evRead, who: w.at, what: p})
	} else {
		r.book(w, p)
	}
}

func (r *run) book(w *worker, reading *engine.Reading) {
	if w.zone.down {
		return
	}
	now := r.time(r.now)
	var failed error
	if reading.At.IsZero() {
		failed = errDeaf
	} else {
		reading.At, reading.LoadAt = now, now // a reader cannot know how old it is
	}
	w.zone.lab.Scraped(w.lab, reading, failed, now)
	r.settle(w.zone)
}

func (r *run) patrol(z *zone) {
	r.agenda.add(event{at: r.now + int64(local.PatrolEvery), kind: evPatrol, who: z.at})
	if z.down {
		return
	}
	now := r.time(r.now)
	for _, w := range z.workers {
		if w.decodes > 0 && w.stalled == 0 && w.dead == 0 {
			z.lab.Emits(w.lab, now)
		}
	}
	z.lab.Patrol(now)
	r.settle(z)
}

func (r *run) pump(z *zone) {
	z.pumping = false
	if z.down {
		return
	}
	waiting := z.lab.Pump(r.time(r.now))
	r.settle(z)
	if waiting {
		r.poke(z)
	}
}

// poke sees to it that a zone in which somebody waits is looked at again.
func (r *run) poke(z *zone) {
	if !z.pumping {
		z.pumping = true
		r.agenda.add(event{at: r.now + int64(local.PumpEvery), kind: evPump, who: z.at})
	}
}
