package sim

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/sched"
	"github.com/spillway-lb/spillway/local/sharding"
)

// zoneTier is the local tier of all zones: its instances, their scrapes, and requests in them.
type zoneTier struct {
	scenario       *Scenario
	spec           *spec.Spec
	result         *RunResult
	scrapeInterval int64
	blankText      []byte
	settledBuf     []*sched.Request

	loop      *eventLoop
	topology  *topology
	network   *network
	reader    *requestReader
	requests  *requestTable
	engines   *workerTier
	regional  *gatewayTier
	baselines *baselineTier
}

func newZoneTier(s *Scenario, sp *spec.Spec) *zoneTier {
	zt := &zoneTier{scenario: s, spec: sp, scrapeInterval: int64(s.Staleness.Interval), blankText: blankText()}
	if zt.scrapeInterval == 0 {
		zt.scrapeInterval = int64(time.Second)
	}
	return zt
}

// blankText is the text of every prompt. It is allocated by the first scenario, because every role of the binary
// links this package.
var blankText = sync.OnceValue(func() []byte { return make([]byte, 32<<20) })

func (zt *zoneTier) addZone(reg *regionState, z *FleetZone) error {
	n := uint64(zt.topology.countZones())
	out := &zoneState{region: reg, name: z.Name}
	chance := rand.New(rand.NewPCG(zt.scenario.Seed, seedWorkers<<32|n))
	for i := range z.Groups {
		g := &z.Groups[i]
		for range g.Count {
			w, err := zt.engines.newSimulatedWorker(out, g, len(out.workers)+1, chance)
			if err != nil {
				return err
			}
			out.workers, zt.topology.workers = append(out.workers, w), append(zt.topology.workers, w)
		}
	}
	reg.zones = append(reg.zones, out)
	for i := range max(z.Locals, 1) {
		if err := zt.addLocalInstance(out, instanceName(reg.name+"-"+z.Name, i, z.Locals)); err != nil {
			return err
		}
	}
	return nil
}

// schedulerPolicy is the policy of the zones' schedulers, which are not used with a baseline.
func (zt *zoneTier) schedulerPolicy() string {
	if zt.baselines.rule != noBaseline {
		return ""
	}
	return zt.scenario.Policy
}

// addLocalInstance adds an instance to a zone and starts it.
func (zt *zoneTier) addLocalInstance(z *zoneState, name string) error {
	a := &localInstance{index: int32(len(zt.topology.instances)), zone: z, name: name}
	a.sender = summarySender{path: capacity.Path{Region: z.region.name, Zone: z.name, Instance: name}, endpoint: name, boot: 1}
	z.instances, zt.topology.instances = append(z.instances, a), append(zt.topology.instances, a)
	for _, w := range z.workers {
		s := &workerHandle{index: int32(len(zt.topology.handles)), instance: a, worker: w}
		a.handles, zt.topology.handles = append(a.handles, s), append(zt.topology.handles, s)
	}
	if err := zt.startInstance(a); err != nil {
		return err
	}
	for _, s := range a.handles {
		zt.loop.addEvent(event{at: zt.nextScrapeAt(s) + s.worker.warmUpTime, kind: evScrapeDue, index: s.index})
	}
	zt.loop.addEvent(event{at: int64(sched.PatrolInterval), kind: evCheckWorkers, index: a.index})
	return nil
}

// startInstance starts an instance with no state but its zone's workers.
func (zt *zoneTier) startInstance(a *localInstance) error {
	z, seed := a.zone, zt.instanceSeed(a)
	a.startCount++
	scheduler, err := newZoneScheduler(a.sender.path, zt.schedulerPolicy(), zt.spec, seed, zt.scenario.PrefixIndexBytes, zt.blankText)
	if err != nil {
		return err
	}
	a.sim, a.applied = scheduler, directiveVersion{}
	if a.peers = nil; len(a.handles) > 0 && zt.hasSeveralInstances(z) {
		a.peers = sharding.New(a.name)
	}
	now := zt.loop.currentTime()
	for _, s := range a.handles {
		w := s.worker
		s.scrapeJitter, s.decoding = sched.NewScrapeJitter(seed, w.name), 0
		if s.simWorker, err = scheduler.addWorker(w, now); err != nil {
			return err
		}
	}
	for _, s := range a.handles { // the first scrape, as when an Agent starts
		if s.worker.refusesConnections() {
			continue
		}
		reading := s.worker.currentReading(now)
		scheduler.recordScrape(s.simWorker, &reading, "", now)
	}
	return nil
}

// instanceSeed is the seed of an instance since its last start.
func (zt *zoneTier) instanceSeed(a *localInstance) uint64 {
	return rand.New(rand.NewPCG(zt.scenario.Seed, seedZone<<32|a.startCount<<20|uint64(a.index))).Uint64()
}

// hasSeveralInstances reports whether a zone has several instances.
func (zt *zoneTier) hasSeveralInstances(z *zoneState) bool {
	f := zt.scenario.Fleet.findRegion(z.region.name)
	return f != nil && f.findZone(z.name).Locals > 1
}

// markInstanceDown counts a cause of an instance's death, and returns its requests if it is the first.
func (zt *zoneTier) markInstanceDown(a *localInstance) (there []*simulatedRequest) {
	if a.deathCauses++; a.deathCauses > 1 {
		return nil
	}
	a.down = true
	for _, x := range zt.requests.active {
		if x.instance == a && x.zoneRequest != nil && !x.ended {
			there = append(there, x)
		}
	}
	return there
}

// Division of a zone's workers among its instances, as in an Agent (local/siblings.go): the decisions are those of
// local/sharding, the message transport is here. Each instance updates the assignment every 250 ms and sends
// heartbeats to the others every 500 ms; a gateway reports the live instances at each change and every five seconds.
const (
	assignmentInterval = sharding.AssignmentInterval
	peerCheckEvery     = 2 // assignments
	directiveInterval  = int64(5 * time.Second)
)

// directiveVersion is the version of the gateways' directives that is in force at an instance.
type directiveVersion struct{ index, planEpoch uint64 }

// assignWorkers updates an instance's assignment of workers.
func (zt *zoneTier) assignWorkers(a *localInstance, n int) {
	zt.loop.addEvent(event{at: zt.loop.now + int64(assignmentInterval), kind: evAssignWorkers, index: a.index, payload: n + 1})
	if a.down || a.peers == nil {
		return
	}
	now := zt.loop.currentTime()
	if n%peerCheckEvery == 0 {
		for _, m := range a.peers.KnownPeers() {
			if b := zt.topology.instanceByName[m.Endpoint]; b != nil && !b.down {
				workers := b.sim.ReachedWorkers()
				a.peers.RecordPeerAnswer(m.Name, sharding.ComputeListVersion(workers), workers, now)
			}
		}
	}
	d := a.peers.AssignWorkers(now)
	a.sim.ApplyAssignment(&d, func(string) bool { return false }, now)
	zt.handleSettled(a)
}

// applyZoneDirective applies a gateway's directive at an instance.
func (zt *zoneTier) applyZoneDirective(a *localInstance, w directiveMessage) {
	d := w.directive
	if a.down || d == nil {
		return
	}
	now := zt.loop.currentTime()
	if a.peers != nil {
		var members []sharding.ZoneInstance
		for _, l := range d.ZoneInstances {
			members = append(members, sharding.ZoneInstance{Name: l.Name, Endpoint: l.Endpoint})
		}
		a.peers.ApplyGatewayReport(w.sender.name, members, now)
	}
	if d.Index > a.applied.index || d.Index == a.applied.index && d.PlanEpoch > a.applied.planEpoch {
		a.applied = directiveVersion{d.Index, d.PlanEpoch}
		a.sim.applyDirective(d, zt.spec, now)
		zt.handleSettled(a)
	}
}

// sendZoneSummary sends the summary of a zone's instance to its region's gateways.
func (zt *zoneTier) sendZoneSummary(a *localInstance) {
	if a.down {
		zt.loop.addEvent(event{at: zt.loop.now + summaryInterval, kind: evZoneSummaryDue, index: a.index})
		return
	}
	summary, next := a.sender.nextSummary(a.sim.Reports.BuildSummary(a.sim.path, zt.loop.currentTime()), zt.loop.now)
	zt.loop.addEvent(event{at: next, kind: evZoneSummaryDue, index: a.index})
	for _, g := range a.zone.region.gateways {
		zt.loop.addEvent(event{at: zt.loop.now + zt.network.zoneDelay(), kind: evZoneSummaryArrival, index: g.index, payload: summary})
		if a.peers != nil && !g.down {
			a.peers.RecordGatewayAlive(g.name, zt.loop.currentTime())
		}
	}
}

// nextScrapeAt is the time of a worker's next scrape.
func (zt *zoneTier) nextScrapeAt(s *workerHandle) int64 {
	factor := 1.0
	if !s.instance.down {
		factor = s.instance.sim.Health.ProbeInterval(s.simWorker, zt.loop.currentTime())
	}
	return zt.loop.now + int64(float64(zt.scrapeInterval)*factor*s.scrapeJitter.NextFactor())
}

// runScheduledScrape scrapes a worker; the reading is recorded when it arrives.
func (zt *zoneTier) runScheduledScrape(at int32) {
	zt.scrapeWorker(at)
	zt.loop.addEvent(event{at: zt.nextScrapeAt(zt.topology.handles[at]), kind: evScrapeDue, index: at})
}

// errConnRefused is the result of scraping a dead worker.
const connRefused = "connection refused"

func (zt *zoneTier) scrapeWorker(at int32) {
	s := zt.topology.handles[at]
	if s.instance.down {
		return
	}
	now, p := zt.loop.currentTime(), &report.Reading{}
	pages := s.instance.sim.Health.NextProbe(s.simWorker, now)
	switch {
	case s.worker.refusesConnections():
	case pages == sched.HealthOnly: // the load stays as last read
		*p, _ = s.simWorker.ScrapeState()
		p.ReadAt = now
	default:
		*p = s.worker.currentReading(now)
	}
	if zt.scenario.Staleness.Delay > 0 {
		zt.loop.addEvent(event{at: zt.loop.now + int64(zt.scenario.Staleness.Delay), kind: evScrapeResult, index: at, payload: p})
	} else {
		zt.recordScrape(s, p)
	}
}

func (zt *zoneTier) recordScrape(s *workerHandle, reading *report.Reading) {
	if s.instance.down {
		return
	}
	now := zt.loop.currentTime()
	failed := ""
	if reading.ReadAt.IsZero() {
		failed = connRefused
	} else {
		if !reading.LoadReadAt.Before(reading.ReadAt) {
			reading.LoadReadAt = now // a reader cannot know how old it is
		}
		reading.ReadAt = now
	}
	s.instance.sim.recordScrape(s.simWorker, reading, failed, now)
	zt.handleSettled(s.instance)
}

func (zt *zoneTier) checkWorkers(a *localInstance) {
	zt.loop.addEvent(event{at: zt.loop.now + int64(sched.PatrolInterval), kind: evCheckWorkers, index: a.index})
	if a.down {
		return
	}
	now := zt.loop.currentTime()
	for _, s := range a.handles {
		if s.decoding > 0 && s.worker.stallCauses == 0 && s.worker.deathCauses == 0 {
			a.sim.RecordProgress(s.simWorker, now)
		}
	}
	a.sim.CheckWorkers(now)
	zt.handleSettled(a)
}
