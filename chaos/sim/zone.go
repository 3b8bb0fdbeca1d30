package sim

import (
	"math/rand/v2"

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
}

// region is a place.
type region struct {
	at    int32
	name  string
	zones []*zone
}

// seats of the random streams, so that adding one thing to a scenario does not change the chance of another.
const (
	seedZone = iota + 1
	seedWorkers
	seedScrapes
	seedRun
)

func (r *run) newZone(reg *region, z *Zone) error {
	n := uint64(len(r.zones))
	lab, err := local.NewLab(local.LabConfig{
		Region: reg.name, Zone: z.Name, Name: reg.name + "-" + z.Name, Policy: r.s.Policy, Spec: r.s.Spec, Blank: r.blank,
		Seed: rand.New(rand.NewPCG(r.s.Seed, seedZone<<32|n)).Uint64(),
	})
	if err != nil {
		return err
	}
	out := &zone{at: int32(n), region: reg, name: z.Name, lab: lab, rng: rand.New(rand.NewPCG(r.s.Seed, seedScrapes<<32|n))}
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
	lab.Seat(r.time(0))
	reg.zones, r.zones = append(reg.zones, out), append(r.zones, out)
	for _, w := range out.workers { // the first look, as when an Agent starts
		reading := w.read(r.time(0))
		lab.Scraped(w.lab, &reading, nil, r.time(0))
		r.agenda.add(event{at: r.scrapeAfter(out, int64(out.rng.Float64()*float64(r.scrape))), kind: evScrape, who: w.at})
	}
	r.agenda.add(event{at: int64(local.PatrolEvery), kind: evPatrol, who: out.at})
	return nil
}

// scrapeAfter is when a worker is looked at again: in an interval, with a tenth of jitter.
func (r *run) scrapeAfter(z *zone, from int64) int64 {
	return from + int64(float64(r.scrape)*(0.9+0.2*z.rng.Float64()))
}

// look reads a worker's page; what it says is booked when it is there.
func (r *run) look(w *worker) {
	p := &page{reading: w.read(r.time(r.now))}
	if r.s.Staleness.Delay > 0 {
		r.agenda.add(event{at: r.now + int64(r.s.Staleness.Delay), kind: evRead, who: w.at, page: p})
	} else {
		r.book(w, &p.reading)
	}
	r.agenda.add(event{at: r.scrapeAfter(w.zone, r.now), kind: evScrape, who: w.at})
}

func (r *run) book(w *worker, reading *engine.Reading) {
	now := r.time(r.now)
	reading.At, reading.LoadAt = now, now // a reader cannot know how old it is
	w.zone.lab.Scraped(w.lab, reading, nil, now)
	r.settle(w.zone)
}

func (r *run) patrol(z *zone) {
	now := r.time(r.now)
	for _, w := range z.workers {
		if w.decodes > 0 {
			z.lab.Emits(w.lab, now)
		}
	}
	z.lab.Patrol(now)
	r.settle(z)
	r.agenda.add(event{at: r.now + int64(local.PatrolEvery), kind: evPatrol, who: z.at})
}

func (r *run) pump(z *zone) {
	z.pumping = false
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
