package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local/engine"
)

// simulation is a running scenario. Its parts refer to each other; each has its own state.
type simulation struct {
	scenario *Scenario
	result   *RunResult

	loop      *eventLoop
	topology  *topology
	reader    *requestReader
	recorder  *recorder
	requests  *requestTable
	engines   *workerTier
	zones     *zoneTier
	regional  *gatewayTier
	global    *globalTier
	baselines *baselineTier
	injector  *faultInjector
	observer  *observer
}

// Run runs a scenario. progress, which may be nil, is called with the completed fraction, 0 to 1. The error names
// what to change in the scenario, or why the run ended early.
func Run(ctx context.Context, s Scenario, progress func(done float64)) (*RunResult, error) {
	if err := s.checkScenario(); err != nil {
		return nil, fmt.Errorf("this scenario cannot be run: %w", err)
	}
	r, err := newSimulation(&s)
	if err != nil {
		return nil, fmt.Errorf("this scenario cannot be run: %w", err)
	}
	if err := r.runEvents(ctx, progress); err != nil {
		return nil, err
	}
	return r.recorder.buildResult()
}

// newSimulation builds a scenario's fleet and schedules its first events.
func newSimulation(s *Scenario) (*simulation, error) {
	if s.GracePeriod == 0 {
		s.GracePeriod = defaultGrace
	}
	if s.SampleInterval == 0 {
		s.SampleInterval = max(s.Duration/100, time.Second)
	}
	reader := &requestReader{scenario: s}
	if err := reader.checkModels(); err != nil {
		return nil, err
	}
	sp, err := fleetSpec(s, reader)
	if err != nil {
		return nil, err
	}
	r := connectParts(s, sp, reader)
	for i := range s.Fleet.Regions {
		f := &s.Fleet.Regions[i]
		reg := &regionState{index: int32(i), name: f.Name, location: geo.Location{City: f.Name, Lat: f.Lat, Lon: f.Lon}}
		r.topology.regions = append(r.topology.regions, reg)
		for k := range f.Zones {
			if err := r.zones.addZone(reg, &f.Zones[k]); err != nil {
				return nil, err
			}
		}
	}
	if r.baselines.rule != noBaseline {
		r.baselines.addBalancers()
	} else if s.hasUpperTiers() {
		for _, reg := range r.topology.regions {
			r.regional.addGateways(reg)
		}
		r.global.startGlobalTier()
	}
	r.observer.startProbes()
	r.injector.scheduleFaults()
	r.loop.addEvent(event{at: int64(s.SampleInterval), kind: evTakeSample})
	r.loop.addEvent(event{kind: evArrivalDue})
	return r, nil
}

// connectParts makes the parts of a simulation and tells each which others it uses.
func connectParts(s *Scenario, sp *spec.Spec, reader *requestReader) *simulation {
	result, loop, tp := &RunResult{Faults: s.Faults}, newEventLoop(), newTopology()
	faults := &faultStates{faults: s.Faults, active: make([]bool, len(s.Faults))}
	nw := newNetwork(s, faults)
	r := &simulation{
		scenario: s, result: result, loop: loop, topology: tp, reader: reader,
		recorder: newRecorder(s, result), requests: &requestTable{scenario: s}, engines: &workerTier{scenario: s, result: result},
		zones: newZoneTier(s, sp), regional: newGatewayTier(s, sp), global: &globalTier{scenario: s, spec: sp, result: result},
		baselines: &baselineTier{scenario: s, result: result, rule: parseBaseline(s.Policy)}, injector: &faultInjector{scenario: s, spec: sp},
	}
	ob := &observer{scenario: s, loop: loop, topology: tp, faults: faults, global: r.global, requests: r.requests, reader: reader}
	r.observer, r.global.observer, r.injector.observer, r.recorder.observer, r.requests.observer, r.engines.observer = ob, ob, ob, ob, ob, ob
	rec, rt, wt, zt, gt, p, bt, fi := r.recorder, r.requests, r.engines, r.zones, r.regional, r.global, r.baselines, r.injector
	rec.loop, rec.topology, rec.network, rec.requests, rec.baselines = loop, tp, nw, rt, bt
	rt.loop, rt.topology, rt.network, rt.recorder, rt.zones, rt.regional, rt.baselines = loop, tp, nw, rec, zt, gt, bt
	wt.loop, wt.topology, wt.recorder, wt.requests, wt.zones, wt.regional, wt.baselines = loop, tp, rec, rt, zt, gt, bt
	zt.result, zt.loop, zt.topology, zt.network, zt.reader, zt.requests, zt.engines, zt.regional, zt.baselines = result, loop, tp, nw, reader, rt, wt, gt, bt
	gt.result, gt.loop, gt.topology, gt.network, gt.reader, gt.requests, gt.global = result, loop, tp, nw, reader, rt, p
	p.loop, p.topology, p.network, p.faults = loop, tp, nw, faults
	bt.loop, bt.topology, bt.network, bt.reader, bt.recorder, bt.requests, bt.engines = loop, tp, nw, reader, rec, rt, wt
	fi.loop, fi.topology, fi.faults, fi.recorder, fi.requests, fi.engines, fi.zones, fi.regional, fi.global = loop, tp, faults, rec, rt, wt, zt, gt, p
	return r
}

// cancelCheckEvents is the number of events between checks of the context.
const cancelCheckEvents = 1024

func (r *simulation) runEvents(ctx context.Context, progress func(float64)) error {
	end := int64(r.scenario.Duration + r.scenario.GracePeriod)
	for {
		e, ok := r.loop.popEvent()
		if !ok || e.at > end || e.at >= int64(r.scenario.Duration) && len(r.requests.active) == 0 {
			break
		}
		r.recorder.recordWindow(e.at)
		r.loop.now = e.at
		if err := r.handleEvent(&e); err != nil {
			return err
		}
		r.engines.cancelGivenUp()
		if r.loop.failure != nil {
			return r.loop.failure
		}
		if r.result.Events++; r.result.Events%cancelCheckEvents == 0 {
			if ctx.Err() != nil {
				return fmt.Errorf("the simulation was stopped at %v of %v: %w", time.Duration(r.loop.now).Round(time.Millisecond), r.scenario.Duration, context.Cause(ctx))
			}
			if progress != nil {
				progress(min(float64(r.loop.now)/float64(r.scenario.Duration), 1))
			}
		}
	}
	r.recorder.recordWindow(int64(r.scenario.Duration))
	if progress != nil {
		progress(1)
	}
	return nil
}

func (r *simulation) handleEvent(e *event) error {
	switch e.kind {
	case evArrivalDue:
		return r.requests.admitArrivals()
	case evEngineStep:
		r.engines.runStep(r.topology.workers[e.index])
	case evAnswerFinish:
		r.engines.finishAnswer(e.request)
	case evWaitExpired:
		r.zones.expireWait(e.request)
	case evScrapeDue:
		r.zones.runScheduledScrape(e.index)
	case evScrapeResult:
		r.zones.recordScrape(r.topology.handles[e.index], e.payload.(*engine.Reading))
	case evCheckWorkers:
		r.zones.checkWorkers(r.topology.instances[e.index])
	case evServeWaiting:
		r.zones.serveWaiting(r.topology.instances[e.index])
	case evTakeSample:
		r.recorder.takeSample()
	case evScrapeNow:
		r.zones.scrapeWorker(e.index)
	case evInjectFault, evClearFault:
		r.injector.setFault(e.index, e.kind == evInjectFault)
	case evObserve:
		r.observer.probeFleet()
	case evCutDue:
		r.engines.cutStream(e.request, e.payload.(*gpu.Sequence))
	case evWorkerReady:
		r.engines.setWorkerDead(r.topology.workers[e.index], false)
	default:
		r.handleUpperTierEvent(e)
	}
	return nil
}

// handleUpperTierEvent processes an event above zones.
func (r *simulation) handleUpperTierEvent(e *event) {
	switch e.kind {
	case evGatewayArrival:
		r.regional.arriveAtGateway(e.request, e.payload != nil)
	case evZoneArrival:
		r.zones.arriveAtZone(e.request, e.payload.(*localInstance))
	case evPeerArrival:
		r.regional.arriveAtPeer(e.request)
	case evPeerReturn:
		r.regional.returnFromPeer(e.request)
	case evAssignWorkers:
		r.zones.assignWorkers(r.topology.instances[e.index], e.payload.(int))
	case evZoneDirectiveArrival:
		r.zones.applyZoneDirective(r.topology.instances[e.index], e.payload.(directiveMessage))
	case evPeerReportDue:
		r.global.exchangePeerReports()
	case evPeerReportArrival:
		r.global.receivePeerReport(r.global.nodes[e.index], e.payload.(*peerReportMessage))
	case evZoneSummaryDue:
		r.zones.sendZoneSummary(r.topology.instances[e.index])
	case evZoneSummaryArrival:
		r.regional.receiveZoneSummary(r.topology.gateways[e.index], e.payload.(*capacity.Summary))
	case evRegionSummaryDue:
		r.regional.sendRegionSummary(r.topology.gateways[e.index])
	case evRegionSummaryArrival:
		r.global.receiveRegionSummary(r.global.nodes[e.index], e.payload.(*capacity.Summary))
	case evRebuildView:
		r.regional.rebuildGatewayView(r.topology.gateways[e.index])
	case evRefreshSnapshot:
		r.global.refreshSnapshots()
	case evMakePlan:
		r.global.makePlan()
	case evPlanAgreed:
		r.global.agreePlan(e.payload.(*steer.Plan))
	case evGlobalDirectiveDue:
		r.global.sendGlobalDirectives()
	case evGlobalDirectiveArrival:
		r.regional.applyGlobalDirective(r.topology.gateways[e.index], e.payload.(*uplink.Directive))
	default:
		r.baselines.handleBalancerEvent(e)
	}
}

// Stream numbers of the random generators, so that an addition to a scenario does not change other random draws.
const (
	seedZone = iota + 1
	seedWorkers
	seedGateways
	seedWAN
	seedStarts
)

// eventLoop is virtual time: what is scheduled, and the time of the event in progress.
type eventLoop struct {
	eventHeap
	startTime time.Time
	now       int64 // ns since the start
	failure   error // ends the run after the event in progress
}

func newEventLoop() *eventLoop { return &eventLoop{startTime: time.Unix(1_700_000_000, 0)} }

// timeAt is a time of the run, in ns since its start, as deciders see it.
func (l *eventLoop) timeAt(at int64) time.Time { return l.startTime.Add(time.Duration(at)) }

// currentTime is the time of the event in progress.
func (l *eventLoop) currentTime() time.Time { return l.timeAt(l.now) }
