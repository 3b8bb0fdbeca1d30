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
	rng     *rand.Rand // jitter of its scrapes
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
	seedScrapes
	seedGateways
	seedWAN
)

func (r *run) newZone(reg *region, z *Zone) error {
	n := uint64(len(r.zones))
	out := &zone{at: int32(n), region: reg, name: z.Name, rng: rand.New(rand.NewPCG(r.s.Seed, seedScrapes<<32|n))}
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
		r.agenda.add(event{at: r.scrapeAfter(out, int64(out.rng.Float64()*float64(r.scrape))), kind: evScrape, who: w.at})
	}
	r.agenda.add(event{at: int64(local.PatrolEvery), kind: evPatrol, who: out.at})
	return nil
}

// open starts a zone's instance, which knows nothing yet but its workers.
func (r *run) open(z *zone) error {
	seed := rand.New(rand.NewPCG(r.s.Seed, seedZone<<32|z.lives<<20|uint64(z.at)))
	z.lives++
	lab, err := local.NewLab(local.LabConfig{
		Region: z.region.name, Zone: z.name, Name: z.region.name + "-" + z.name, Policy: r.floors(), Spec: r.spec, Blank: r.blank,
		Seed: seed.Uint64(), PrefixIndex: r.index,
	})
	if err != nil {
		return err
	}
	z.lab = lab
	now := r.time(r.now)
	for _, w := range z.workers {
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

// scrapeAfter is when a worker is looked at again: in an interval, with a tenth of jitter.
func (r *run) scrapeAfter(z *zone, from int64) int64 {
	return from + int64(float64(r.scrape)*(0.9+0.2*z.rng.Float64()))
}

// look reads a worker's page; what it says is booked when it is there.
func (r *run) look(w *worker) {
	r.agenda.add(event{at: r.scrapeAfter(w.zone, r.now), kind: evScrape, who: w.at})
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
