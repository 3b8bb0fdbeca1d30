package sim

import (
	"math/rand/v2"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/sched"
	"github.com/spillway-lb/spillway/local/sharding"
)

// localInstance is one instance of a zone's local tier.
type localInstance struct {
	index         int32 // in simulation.instances
	zone          *zoneState
	name          string
	sim           *zoneScheduler
	handles       []*workerHandle // by the worker's index in the zone
	pumpScheduled bool
	down          bool
	deathCauses   int // active causes of its death
	startCount    uint64
	sender        summarySender
	peers         *sharding.PeerTable // its view of the zone's other instances; nil if there are none
	applied       directiveVersion    // versions of the gateways' directives in force
}

// workerHandle is the state of a worker at one instance of its zone.
type workerHandle struct {
	index        int32 // in simulation.handles
	instance     *localInstance
	worker       *simulatedWorker
	simWorker    *sched.Worker
	scrapeJitter sched.ScrapeJitter
	decoding     int // running answers of this instance after their first token
}

// addLocalInstance adds an instance to a zone and starts it.
func (r *simulation) addLocalInstance(z *zoneState, name string) error {
	a := &localInstance{index: int32(len(r.instances)), zone: z, name: name}
	a.sender = summarySender{path: capacity.Path{Region: z.region.name, Zone: z.name, Instance: name}, endpoint: name, boot: 1}
	z.instances, r.instances = append(z.instances, a), append(r.instances, a)
	for _, w := range z.workers {
		s := &workerHandle{index: int32(len(r.handles)), instance: a, worker: w}
		a.handles, r.handles = append(a.handles, s), append(r.handles, s)
	}
	if err := r.startInstance(a); err != nil {
		return err
	}
	for _, s := range a.handles {
		r.events.addEvent(event{at: r.nextScrapeAt(s) + s.worker.warmUpTime, kind: evScrapeDue, index: s.index})
	}
	r.events.addEvent(event{at: int64(sched.PatrolInterval), kind: evCheckWorkers, index: a.index})
	return nil
}

// startInstance starts an instance with no state but its zone's workers.
func (r *simulation) startInstance(a *localInstance) error {
	z, seed := a.zone, r.instanceSeed(a)
	a.startCount++
	scheduler, err := newZoneScheduler(a.sender.path, r.schedulerPolicy(), r.spec, seed, r.prefixIndexBytes, r.blankText)
	if err != nil {
		return err
	}
	a.sim, a.applied = scheduler, directiveVersion{}
	if a.peers = nil; len(a.handles) > 0 && r.hasSeveralInstances(z) {
		a.peers = sharding.New(a.name)
	}
	now := r.timeAt(r.now)
	for _, s := range a.handles {
		w := s.worker
		s.scrapeJitter, s.decoding = sched.NewScrapeJitter(seed, w.name), 0
		if s.simWorker, err = scheduler.addWorker(w, now); err != nil {
			return err
		}
	}
	for _, s := range a.handles { // the first scrape, as when an Agent starts
		if s.worker.deathCauses > 0 {
			continue
		}
		reading := s.worker.currentReading(now)
		scheduler.recordScrape(s.simWorker, &reading, "", now)
	}
	return nil
}

// instanceSeed is the seed of an instance since its last start.
func (r *simulation) instanceSeed(a *localInstance) uint64 {
	return rand.New(rand.NewPCG(r.scenario.Seed, seedZone<<32|a.startCount<<20|uint64(a.index))).Uint64()
}

// nextScrapeAt is the time of a worker's next scrape.
func (r *simulation) nextScrapeAt(s *workerHandle) int64 {
	return r.now + int64(float64(r.scrapeInterval)*s.scrapeJitter.NextFactor())
}

// runScheduledScrape scrapes a worker; the reading is recorded when it arrives.
func (r *simulation) runScheduledScrape(at int32) {
	r.events.addEvent(event{at: r.nextScrapeAt(r.handles[at]), kind: evScrapeDue, index: at})
	r.scrapeWorker(at)
}

// errConnRefused is the result of scraping a dead worker.
const connRefused = "connection refused"

func (r *simulation) scrapeWorker(at int32) {
	s := r.handles[at]
	if s.instance.down {
		return
	}
	p := &report.Reading{}
	if s.worker.deathCauses == 0 {
		*p = s.worker.currentReading(r.timeAt(r.now))
	}
	if r.scenario.Staleness.Delay > 0 {
		r.events.addEvent(event{at: r.now + int64(r.scenario.Staleness.Delay), kind: evScrapeResult, index: at, payload: p})
	} else {
		r.recordScrape(s, p)
	}
}

func (r *simulation) recordScrape(s *workerHandle, reading *report.Reading) {
	if s.instance.down {
		return
	}
	now := r.timeAt(r.now)
	failed := ""
	if reading.ReadAt.IsZero() {
		failed = connRefused
	} else {
		reading.ReadAt, reading.LoadReadAt = now, now // a reader cannot know how old it is
	}
	s.instance.sim.recordScrape(s.simWorker, reading, failed, now)
	r.handleSettled(s.instance)
}

func (r *simulation) checkWorkers(a *localInstance) {
	r.events.addEvent(event{at: r.now + int64(sched.PatrolInterval), kind: evCheckWorkers, index: a.index})
	if a.down {
		return
	}
	now := r.timeAt(r.now)
	for _, s := range a.handles {
		if s.decoding > 0 && s.worker.stallCauses == 0 && s.worker.deathCauses == 0 {
			a.sim.RecordProgress(s.simWorker, now)
		}
	}
	a.sim.CheckWorkers(now)
	r.handleSettled(a)
}

func (r *simulation) serveWaiting(a *localInstance) {
	a.pumpScheduled = false
	if a.down {
		return
	}
	waiting := a.sim.Admission.ServeAllQueues(r.timeAt(r.now))
	r.handleSettled(a)
	if waiting {
		r.schedulePump(a)
	}
}

// schedulePump schedules the next pump of an instance with waiting requests.
func (r *simulation) schedulePump(a *localInstance) {
	if !a.pumpScheduled {
		a.pumpScheduled = true
		r.events.addEvent(event{at: r.now + int64(sched.PumpInterval), kind: evServeWaiting, index: a.index})
	}
}
