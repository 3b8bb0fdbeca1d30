package sim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/sched"
)

// simulation is a running scenario.
type simulation struct {
	scenario       *Scenario
	startTime      time.Time
	now            int64 // ns since the start
	events         eventHeap
	regions        []*regionState
	instances      []*localInstance
	handles        []*workerHandle
	workers        []*simulatedWorker
	scrapeInterval int64
	defaultModel   string              // the model of requests when the scenario names none
	nextArrivalAt  int64               // time of the scheduled arrival
	active         []*simulatedRequest // not ended yet
	sentCount      int64
	failure        error
	givenUp        []*simulatedRequest // given up by a scheduler, until that is carried out
	result         *RunResult
	tenantStats    []Breakdown
	tenantServices []TenantService // by ended attempts, per tenant
	regionStats    []Breakdown
	warmUpTotals   runTotals // at the end of the warm-up
	lastSample     runTotals // at the last sample
	goodCount      int64
	completedCount int64

	spec             *spec.Spec
	serviceName      string
	clientCells      []string // of the regions' clients
	gateways         []*gatewayInstance
	global           *globalTier
	sendsDirectives  bool // gateways have something to send to zones
	drainIndex       uint64
	failedLeaders    map[int32]*globalNode           // by fault
	gatewayByAddr    map[netip.Addr]*gatewayInstance // by the address that clients connect to
	instanceByName   map[string]*localInstance
	gatewayByName    map[string]*gatewayInstance
	activeFaults     []bool // active faults
	baseline         baselineRule
	balancers        []*baselineBalancer
	networkRand      *rand.Rand
	prefixIndexBytes int // bytes of a zone's prefix index
	landmarkBuf      []uint64

	blankText  []byte
	blockBuf   []uint64
	settledBuf []*sched.Request
}

// runTotals are totals at one moment.
type runTotals struct {
	sent, completed, refused, good int64
	promptTokens, outputTokens     uint64
}

// blankText is the text of every prompt. It is allocated by the first scenario, because every role of the binary
// links this package.
var blankText = sync.OnceValue(func() []byte { return make([]byte, 32<<20) })

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
	return r.buildResult()
}

func newSimulation(s *Scenario) (*simulation, error) {
	r := &simulation{scenario: s, startTime: time.Unix(1_700_000_000, 0), scrapeInterval: int64(s.Staleness.Interval), prefixIndexBytes: s.PrefixIndexBytes, blankText: blankText(), result: &RunResult{Faults: s.Faults}}
	if r.scrapeInterval == 0 {
		r.scrapeInterval = int64(time.Second)
	}
	if s.GracePeriod == 0 {
		s.GracePeriod = defaultGrace
	}
	if s.SampleInterval == 0 {
		s.SampleInterval = max(s.Duration/100, time.Second)
	}
	r.baseline = parseBaseline(s.Policy)
	r.networkRand = rand.New(rand.NewPCG(s.Seed, seedWAN<<32))
	r.instanceByName, r.gatewayByName, r.gatewayByAddr = map[string]*localInstance{}, map[string]*gatewayInstance{}, map[netip.Addr]*gatewayInstance{}
	if err := r.checkModels(); err != nil {
		return nil, err
	}
	if err := r.prepareSpec(); err != nil {
		return nil, err
	}
	r.tenantServices = make([]TenantService, len(s.Tenants))
	r.tenantStats, r.regionStats = newBreakdowns(s.Tenants), make([]Breakdown, len(s.Fleet.Regions))
	for i := range s.Fleet.Regions {
		f := &s.Fleet.Regions[i]
		reg := &regionState{index: int32(i), name: f.Name, location: geo.Location{City: f.Name, Lat: f.Lat, Lon: f.Lon}}
		r.clientCells = append(r.clientCells, geo.CellName(geo.CellAt(reg.location)))
		r.regionStats[i].Name = reg.name
		r.regions = append(r.regions, reg)
		for k := range s.Fleet.Regions[i].Zones {
			if err := r.addZone(reg, &s.Fleet.Regions[i].Zones[k]); err != nil {
				return nil, err
			}
		}
	}
	if r.baseline != noBaseline {
		r.addBalancers()
	} else if s.hasUpperTiers() {
		if len(r.spec.Services) > 0 {
			r.serviceName = r.spec.Services[0].Name
		}
		r.sendsDirectives = r.needsDirectives()
		for _, reg := range r.regions {
			r.addGateways(reg)
		}
		r.startGlobalTier()
	}
	r.scheduleFaults()
	r.events.addEvent(event{at: int64(s.SampleInterval), kind: evTakeSample})
	r.events.addEvent(event{kind: evArrivalDue})
	return r, nil
}

func newBreakdowns(names []string) []Breakdown {
	out := make([]Breakdown, len(names))
	for i, n := range names {
		out[i].Name = n
	}
	return out
}

// servedModels are the models that the fleet serves, in order.
func (r *simulation) servedModels() (out []string) {
	for _, g := range r.workerGroups() {
		if p, err := gpu.LookupProfile(g.GPU, g.Model, g.TP); err == nil && !slices.Contains(out, p.Model) {
			out = append(out, p.Model)
		}
	}
	slices.Sort(out)
	return out
}

// checkModels checks that the fleet serves the models of the workload.
func (r *simulation) checkModels() error {
	served := r.servedModels()
	r.defaultModel = served[0] // checkScenario has verified that there are workers
	if len(r.scenario.Models) == 0 && len(served) > 1 {
		return fmt.Errorf("the fleet serves %d models: name those that the workload numbers (Models)", len(served))
	}
	if len(r.scenario.Models) > capacity.MaxModels {
		return fmt.Errorf("%d models: a zone serves %d at most", len(r.scenario.Models), capacity.MaxModels)
	}
	for _, m := range r.scenario.Models {
		if !slices.Contains(served, m) {
			return fmt.Errorf("no worker serves the model %s: add a group of workers that do, or take it out of the workload", m)
		}
	}
	return nil
}

func (r *simulation) workerGroups() (out []*WorkerGroup) {
	for i := range r.scenario.Fleet.Regions {
		for k := range r.scenario.Fleet.Regions[i].Zones {
			z := &r.scenario.Fleet.Regions[i].Zones[k]
			for g := range z.Groups {
				out = append(out, &z.Groups[g])
			}
		}
	}
	return out
}

// cancelCheckEvents is the number of events between checks of the context.
const cancelCheckEvents = 1024

func (r *simulation) runEvents(ctx context.Context, progress func(float64)) error {
	end := int64(r.scenario.Duration + r.scenario.GracePeriod)
	for {
		e, ok := r.events.popEvent()
		if !ok || e.at > end || e.at >= int64(r.scenario.Duration) && len(r.active) == 0 {
			break
		}
		r.recordWindow(e.at)
		r.now = e.at
		if err := r.handleEvent(&e); err != nil {
			return err
		}
		r.cancelGivenUp()
		if r.failure != nil {
			return r.failure
		}
		if r.result.Events++; r.result.Events%cancelCheckEvents == 0 {
			if ctx.Err() != nil {
				return fmt.Errorf("the simulation was stopped at %v of %v: %w", time.Duration(r.now).Round(time.Millisecond), r.scenario.Duration, context.Cause(ctx))
			}
			if progress != nil {
				progress(min(float64(r.now)/float64(r.scenario.Duration), 1))
			}
		}
	}
	r.recordWindow(int64(r.scenario.Duration))
	if progress != nil {
		progress(1)
	}
	return nil
}

// recordWindow records the totals at the start and end of the measured window.
func (r *simulation) recordWindow(to int64) {
	if from := int64(r.scenario.WarmUp); r.now < from && to >= from || from == 0 && r.now == 0 {
		r.warmUpTotals = r.currentTotals()
	}
	if until := int64(r.scenario.Duration); r.now < until && to >= until {
		t := r.currentTotals()
		r.result.Window = r.scenario.Duration - r.scenario.WarmUp
		r.result.PrefillRate = float64(t.promptTokens-r.warmUpTotals.promptTokens) / r.result.Window.Seconds()
		r.result.OutputRate = float64(t.outputTokens-r.warmUpTotals.outputTokens) / r.result.Window.Seconds()
	}
}

func (r *simulation) handleEvent(e *event) error {
	switch e.kind {
	case evArrivalDue:
		return r.admitArrivals()
	case evEngineStep:
		r.runStep(r.workers[e.index])
	case evAnswerFinish:
		r.finishAnswer(e.request)
	case evWaitExpired:
		r.expireWait(e.request)
	case evScrapeDue:
		r.runScheduledScrape(e.index)
	case evScrapeResult:
		r.recordScrape(r.handles[e.index], e.payload.(*engine.Reading))
	case evCheckWorkers:
		r.checkWorkers(r.instances[e.index])
	case evServeWaiting:
		r.serveWaiting(r.instances[e.index])
	case evTakeSample:
		r.takeSample()
	case evScrapeNow:
		r.scrapeWorker(e.index)
	case evInjectFault, evClearFault:
		r.setFault(e.index, e.kind == evInjectFault)
	case evWorkerReady:
		r.setWorkerDead(r.workers[e.index], false)
	default:
		r.handleUpperTierEvent(e)
	}
	return nil
}

// handleUpperTierEvent processes an event above zones.
func (r *simulation) handleUpperTierEvent(e *event) {
	switch e.kind {
	case evGatewayArrival:
		r.arriveAtGateway(e.request, e.payload != nil)
	case evZoneArrival:
		r.arriveAtZone(e.request, e.payload.(*localInstance))
	case evPeerArrival:
		r.arriveAtPeer(e.request)
	case evPeerReturn:
		r.returnFromPeer(e.request)
	case evAssignWorkers:
		r.assignWorkers(r.instances[e.index], e.payload.(int))
	case evZoneDirectiveArrival:
		r.applyZoneDirective(r.instances[e.index], e.payload.(directiveMessage))
	case evPeerReportDue:
		r.exchangePeerReports()
	case evPeerReportArrival:
		r.receivePeerReport(r.global.nodes[e.index], e.payload.(*peerReportMessage))
	case evZoneSummaryDue:
		r.sendZoneSummary(r.instances[e.index])
	case evZoneSummaryArrival:
		r.receiveZoneSummary(r.gateways[e.index], e.payload.(*capacity.Summary))
	case evRegionSummaryDue:
		r.sendRegionSummary(r.gateways[e.index])
	case evRegionSummaryArrival:
		r.receiveRegionSummary(r.global.nodes[e.index], e.payload.(*capacity.Summary))
	case evRebuildView:
		r.rebuildGatewayView(r.gateways[e.index])
	case evRefreshSnapshot:
		r.refreshSnapshots()
	case evMakePlan:
		r.makePlan()
	case evPlanAgreed:
		r.agreePlan(e.payload.(*steer.Plan))
	case evGlobalDirectiveDue:
		r.sendGlobalDirectives()
	case evGlobalDirectiveArrival:
		r.applyGlobalDirective(r.gateways[e.index], e.payload.(*uplink.Directive))
	default:
		r.handleBalancerEvent(e)
	}
}

// cancelGivenUp carries out the attempts that schedulers gave up.
func (r *simulation) cancelGivenUp() {
	// A scheduler gives up a worker's attempts in random order, and later events depend on the order.
	slices.SortFunc(r.givenUp, func(a, b *simulatedRequest) int { return cmp.Compare(a.req.ID, b.req.ID) })
	for len(r.givenUp) > 0 {
		x := r.givenUp[0]
		r.givenUp = r.givenUp[1:]
		if x.ended || x.worker == nil {
			continue
		}
		w := x.worker
		if x.sequence != nil {
			w.engine.SettleTo(r.timeAt(r.now))
			w.engine.Cancel(x.sequence)
			r.scheduleStep(w)
		}
		r.endLostAttempt(x, endGivenUp, openai.CodeUpstream)
	}
}

func (r *simulation) timeAt(at int64) time.Time { return r.startTime.Add(time.Duration(at)) }
