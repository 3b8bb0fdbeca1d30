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
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/engine"
)

// run is a scenario under way.
type run struct {
	s        *Scenario
	epoch    time.Time
	now      int64 // ns since the start
	agenda   agenda
	regions  []*region
	agents   []*agent
	seats    []*seat
	workers  []*worker
	scrape   int64
	only     string  // the model of requests when the scenario names none
	awaited  int64   // when the planned arrival is due
	rides    []*ride // that are not over
	sent     int64
	failed   error
	given    []*ride // that a floor has given up, until that is carried out
	out      *Result
	tenants  []Part
	services []Service // of the tenants, by attempts that are over
	places   []Part
	before   tally // at the end of the warm-up
	sampled  tally // at the last sample
	good     int64
	done     int64

	spec     *spec.Spec
	service  string
	cells    []string // of the regions' clients
	gateways []*gateway
	planet   *planet
	tells    bool // gateways have something to tell zones
	drains   uint64
	victims  map[int32]*node         // by fault
	doors    map[netip.Addr]*gateway // by the address that clients connect to
	ends     map[string]*agent
	peers    map[string]*gateway
	broken   []bool // faults that are on
	rival    rivalRule
	pushers  []*pusher
	chance   *rand.Rand
	index    int // bytes of a zone's prefix index
	marked   []uint64

	blank   []byte
	ask     local.LabAsk
	cut     []uint64
	scratch []*local.LabVisit
}

// tally are totals at one moment.
type tally struct {
	sent, done, refused, good int64
	prompt, output            uint64
}

// blank stands for every prompt's text. It is made for the first scenario: every role of the binary has this package in it.
var blank = sync.OnceValue(func() []byte { return make([]byte, 32<<20) })

// Run plays a scenario. progress, which may be nil, is told what part of it is done, from 0 to 1. The error says what to
// write instead, or why it ended before its time.
func Run(ctx context.Context, s Scenario, progress func(done float64)) (*Result, error) {
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("this scenario cannot be run: %w", err)
	}
	r, err := newRun(&s)
	if err != nil {
		return nil, fmt.Errorf("this scenario cannot be run: %w", err)
	}
	if err := r.play(ctx, progress); err != nil {
		return nil, err
	}
	return r.result()
}

func newRun(s *Scenario) (*run, error) {
	r := &run{s: s, epoch: time.Unix(1_700_000_000, 0), scrape: int64(s.Staleness.Scrape), index: s.PrefixIndex, blank: blank(), out: &Result{Faults: s.Faults}}
	if r.scrape == 0 {
		r.scrape = int64(time.Second)
	}
	if s.Grace == 0 {
		s.Grace = defaultGrace
	}
	if s.Every == 0 {
		s.Every = max(s.Duration/100, time.Second)
	}
	r.rival = rivalNamed(s.Policy)
	r.chance = rand.New(rand.NewPCG(s.Seed, seedWAN<<32))
	r.ends, r.peers, r.doors = map[string]*agent{}, map[string]*gateway{}, map[netip.Addr]*gateway{}
	if err := r.serves(); err != nil {
		return nil, err
	}
	if err := r.declare(); err != nil {
		return nil, err
	}
	r.services = make([]Service, len(s.Tenants))
	r.tenants, r.places = parts(s.Tenants), make([]Part, len(s.Fleet.Regions))
	for i := range s.Fleet.Regions {
		f := &s.Fleet.Regions[i]
		reg := &region{at: int32(i), name: f.Name, place: geo.Place{City: f.Name, Lat: f.Lat, Lon: f.Lon}}
		r.cells = append(r.cells, geo.CellName(geo.CellOf(reg.place)))
		r.places[i].Name = reg.name
		r.regions = append(r.regions, reg)
		for k := range s.Fleet.Regions[i].Zones {
			if err := r.newZone(reg, &s.Fleet.Regions[i].Zones[k]); err != nil {
				return nil, err
			}
		}
	}
	if r.rival != noRival {
		r.newPushers()
	} else if s.tiered() {
		if len(r.spec.Services) > 0 {
			r.service = r.spec.Services[0].Name
		}
		r.tells = r.directs()
		for _, reg := range r.regions {
			r.newRegion(reg)
		}
		r.newPlanet()
	}
	r.planFaults()
	r.agenda.add(event{at: int64(s.Every), kind: evSample})
	r.agenda.add(event{kind: evArrive})
	return r, nil
}

func parts(names []string) []Part {
	out := make([]Part, len(names))
	for i, n := range names {
		out[i].Name = n
	}
	return out
}

// served are the models that the fleet serves, in order.
func (r *run) served() (out []string) {
	for _, g := range r.groups() {
		if p, err := gpu.Lookup(g.GPU, g.Model, g.TP); err == nil && !slices.Contains(out, p.Model) {
			out = append(out, p.Model)
		}
	}
	slices.Sort(out)
	return out
}

// serves finds out whether the fleet serves what is asked of it.
func (r *run) serves() error {
	served := r.served()
	r.only = served[0] // check has seen that there are workers
	if len(r.s.Models) == 0 && len(served) > 1 {
		return fmt.Errorf("the fleet serves %d models: name those that the workload numbers (Models)", len(served))
	}
	if len(r.s.Models) > capacity.MaxModels {
		return fmt.Errorf("%d models: a zone serves %d at most", len(r.s.Models), capacity.MaxModels)
	}
	for _, m := range r.s.Models {
		if !slices.Contains(served, m) {
			return fmt.Errorf("no worker serves the model %s: add a group of workers that do, or take it out of the workload", m)
		}
	}
	return nil
}

func (r *run) groups() (out []*Group) {
	for i := range r.s.Fleet.Regions {
		for k := range r.s.Fleet.Regions[i].Zones {
			z := &r.s.Fleet.Regions[i].Zones[k]
			for g := range z.Groups {
				out = append(out, &z.Groups[g])
			}
		}
	}
	return out
}

// lookEvery is after how many events the caller's patience is looked at.
const lookEvery = 1024

func (r *run) play(ctx context.Context, progress func(float64)) error {
	end := int64(r.s.Duration + r.s.Grace)
	for {
		e, ok := r.agenda.take()
		if !ok || e.at > end || e.at >= int64(r.s.Duration) && len(r.rides) == 0 {
			break
		}
		r.pass(e.at)
		r.now = e.at
		if err := r.happen(&e); err != nil {
			return err
		}
		r.relent()
		if r.failed != nil {
			return r.failed
		}
		if r.out.Events++; r.out.Events%lookEvery == 0 {
			if ctx.Err() != nil {
				return fmt.Errorf("the simulation was stopped at %v of %v: %w", time.Duration(r.now).Round(time.Millisecond), r.s.Duration, context.Cause(ctx))
			}
			if progress != nil {
				progress(min(float64(r.now)/float64(r.s.Duration), 1))
			}
		}
	}
	r.pass(int64(r.s.Duration))
	if progress != nil {
		progress(1)
	}
	return nil
}

// pass notes the totals when the measured window begins and ends.
func (r *run) pass(to int64) {
	if from := int64(r.s.WarmUp); r.now < from && to >= from || from == 0 && r.now == 0 {
		r.before = r.tally()
	}
	if until := int64(r.s.Duration); r.now < until && to >= until {
		t := r.tally()
		r.out.Window = r.s.Duration - r.s.WarmUp
		r.out.PrefillRate = float64(t.prompt-r.before.prompt) / r.out.Window.Seconds()
		r.out.OutputRate = float64(t.output-r.before.output) / r.out.Window.Seconds()
	}
}

func (r *run) happen(e *event) error {
	switch e.kind {
	case evArrive:
		return r.arrive()
	case evStep:
		r.step(r.workers[e.who])
	case evFinish:
		r.finish(e.ride)
	case evLate:
		r.late(e.ride)
	case evScrape:
		r.look(e.who)
	case evRead:
		r.book(r.seats[e.who], e.what.(*engine.Reading))
	case evPatrol:
		r.patrol(r.agents[e.who])
	case evPump:
		r.pump(r.agents[e.who])
	case evSample:
		r.sample()
	case evProbe:
		r.probe(e.who)
	case evFault, evMend:
		r.strike(e.who, e.kind == evFault)
	case evServes:
		r.kill(r.workers[e.who], false)
	default:
		r.above(e)
	}
	return nil
}

// above is what happens above zones.
func (r *run) above(e *event) {
	switch e.kind {
	case evReach:
		r.reach(e.ride, e.what != nil)
	case evEnter:
		r.enter(e.ride, e.what.(*agent))
	case evGuest:
		r.guest(e.ride)
	case evHome:
		r.comeHome(e.ride)
	case evDivide:
		r.divide(r.agents[e.who], e.what.(int))
	case evTold:
		r.told(r.agents[e.who], e.what.(word))
	case evTestify:
		r.testify()
	case evWitness:
		r.witness(r.planet.nodes[e.who], e.what.(*testimony))
	case evTell:
		r.tell(r.agents[e.who])
	case evHear:
		r.hear(r.gateways[e.who], e.what.(*capacity.Summary))
	case evReport:
		r.report(r.gateways[e.who])
	case evHeard:
		r.heard(r.planet.nodes[e.who], e.what.(*capacity.Summary))
	case evLook:
		r.glance(r.gateways[e.who])
	case evView:
		r.view()
	case evPlan:
		r.solve()
	case evAdopt:
		r.adopt(e.what.(*steer.Plan))
	case evDirect:
		r.direct()
	case evObey:
		r.obey(r.gateways[e.who], e.what.(*uplink.Directive))
	default:
		r.pushing(e)
	}
}

// relent carries out what floors have given up.
func (r *run) relent() {
	// A floor gives a worker's attempts up in no order, and what follows depends on it.
	slices.SortFunc(r.given, func(a, b *ride) int { return cmp.Compare(a.req.ID, b.req.ID) })
	for len(r.given) > 0 {
		x := r.given[0]
		r.given = r.given[1:]
		if x.over || x.worker == nil {
			continue
		}
		w := x.worker
		if x.seq != nil {
			w.engine.Settle(r.time(r.now))
			w.engine.Cancel(x.seq)
			r.plan(w)
		}
		r.lose(x, local.EndGivenUp, openai.CodeUpstream)
	}
}

func (r *run) time(at int64) time.Time { return r.epoch.Add(time.Duration(at)) }
