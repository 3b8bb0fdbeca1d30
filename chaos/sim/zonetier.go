package sim

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
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
		if s.worker.deathCauses > 0 {
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
