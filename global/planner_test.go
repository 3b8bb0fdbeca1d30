package global

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// stubNode takes plans in place of a consensus node.
type stubNode struct {
	state consensus.State
	plans [][]byte
}

func (n *stubNode) State() *consensus.State { return &n.state }

func (n *stubNode) PutPlan(_ context.Context, _ uint64, body []byte, _ consensus.By, _ string) (uint64, error) {
	n.plans = append(n.plans, body)
	return uint64(len(n.plans)), nil
}

// plannerBench is a planner with a stub node, and what goes into its Views.
type plannerBench struct {
	*planner
	stub    *stubNode
	frame   *frame
	reports map[string]*capacity.Summary // by region; absent: never heard
	quorum  quorum
	plan    *steer.Plan
	start   time.Time
	now     time.Time
	log     bytes.Buffer
	seq     uint64
}

func newPlannerBench(t *testing.T) *plannerBench {
	t.Helper()
	atlas, err := geo.Open(geo.Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFrame(1, []byte(strings.Replace(specText(), "ramp: 0s", "ramp: 30s", 1)), atlas)
	if err != nil {
		t.Fatal(err)
	}
	b := &plannerBench{
		frame: f, start: time.Unix(1_000_000, 0), stub: &stubNode{state: consensus.State{SpecVersion: 1, Index: 7}},
		reports: map[string]*capacity.Summary{}, quorum: quorum{self: "g1", voters: []string{"g1", "g2", "g3"}, others: map[string]testimony{}},
	}
	for _, name := range []string{"virginia", "frankfurt", "tokyo"} {
		b.reports[name] = capacityOf(10_000, 8)
	}
	b.now = b.start.Add(time.Hour)
	s := &Server{bench: newBench(func() {}), started: b.start, replan: make(chan struct{}, 1), log: slog.New(slog.NewTextHandler(&b.log, nil)), leaser: &leaser{}}
	s.metrics = newMetrics(prometheus.NewRegistry(), s)
	b.planner = &planner{s: s, node: b.stub}
	return b
}

// view is what the keeper would make of the reports now.
func (b *plannerBench) view() *View {
	book := capacity.NewBook(capacity.Thresholds{})
	b.seq++
	for name, s := range b.reports {
		x := *s
		x.Path, x.Boot, x.Seq = capacity.Path{Region: name, Instance: b.frame.spec.Region(name).Gateways[0].Name}, 1, b.seq
		book.Put(&x, b.now)
	}
	q := b.quorum
	v := newView(b.frame, &b.stub.state, book.View(b.now), &q, b.now, b.now.Sub(b.start) > grace)
	v.from, v.plan = agreedState, b.plan
	v.table = steer.Compile(b.frame.spec, b.frame.geo, b.plan)
	return v
}

func (b *plannerBench) ask(region string, tokens int64) {
	cell := b.frame.atlas.Locate(netip.MustParseAddr(clients[region])).Cell
	b.reports[region].Demand = []capacity.Demand{{
		Service: strings.TrimSuffix(service, "."), Model: "m1", Cell: geo.CellName(cell), TokensPerSec: tokens, RequestsPerSecMilli: 1000,
	}}
}

// TestPlannerGuards has one row for each reason not to plan. Each row alone keeps a plan from being made that would be
// made without it.
func TestPlannerGuards(t *testing.T) {
	hears := func(region string) testimony { return testimony{Settled: true, Heard: []string{region + "/x"}} }
	for _, c := range []struct {
		name  string
		setup func(b *plannerBench)
		view  func(v *View)
		want  int // plans
	}{
		{name: "all is well", want: 1},
		{name: "a region that another node hears has never been heard here", setup: func(b *plannerBench) {
			delete(b.reports, "tokyo")
			b.quorum.others["g2"] = hears("tokyo")
		}},
		{name: "a region that two other nodes hear has never been heard here", setup: func(b *plannerBench) {
			delete(b.reports, "tokyo")
			b.quorum.others["g2"], b.quorum.others["g3"] = hears("tokyo"), hears("tokyo")
		}},
		{name: "a majority does not hear it either", want: 1, setup: func(b *plannerBench) {
			delete(b.reports, "tokyo")
			b.quorum.others["g2"], b.quorum.others["g3"] = hears("tokyo"), testimony{Settled: true}
		}},
		{name: "nobody hears it", want: 1, setup: func(b *plannerBench) {
			delete(b.reports, "tokyo")
			b.quorum.others["g2"], b.quorum.others["g3"] = testimony{Settled: true}, testimony{Settled: true}
		}},
		{name: "the node has not settled", setup: func(b *plannerBench) {
			delete(b.reports, "tokyo")
			b.now = b.start.Add(grace - time.Millisecond)
		}},
		{name: "the node has settled", want: 1, setup: func(b *plannerBench) {
			delete(b.reports, "tokyo")
			b.now = b.start.Add(grace + time.Millisecond)
		}},
		{name: "the node has not settled, and hears every region", want: 1, setup: func(b *plannerBench) { b.now = b.start.Add(time.Millisecond) }},
		{name: "a region's silence says nothing", setup: func(b *plannerBench) { b.quorum.muffled.Add(2) }},
		{name: "the View is of an older spec", view: func(v *View) { f := *v.frame; f.version = 0; v.frame = &f }},
		{name: "the View is of an older index", view: func(v *View) { s := *v.state; s.Index--; v.state = &s }},
		{name: "the View is not of agreed state", view: func(v *View) { v.from = savedState }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newPlannerBench(t)
			if c.setup != nil {
				c.setup(b)
			}
			v := b.view()
			if c.view != nil {
				c.view(v)
			}
			b.planner.plan(t.Context(), v, b.now)
			if len(b.stub.plans) != c.want {
				t.Errorf("%d plans are made, want %d; log:\n%s", len(b.stub.plans), c.want, b.log.String())
			}
		})
	}
}

// TestPlannerInput has one row for each step between reports and the solver's input.
func TestPlannerInput(t *testing.T) {
	const virginia = 0
	for _, c := range []struct {
		name  string
		setup func(b *plannerBench) // before the first round
		next  func(b *plannerBench) // before the second, a second later
		check func(first, second *steer.Input) bool
	}{
		{
			name: "guard: a region of which few workers are ready is sick",
			next: func(b *plannerBench) {
				b.reports["virginia"] = capacityOf(1250, 1)
				b.reports["virginia"].Models[0].Total = 8
			},
			check: func(first, second *steer.Input) bool {
				return !first.Regions[virginia].Sick && second.Regions[virginia].Sick
			},
		},
		{
			name: "returns: a region that the plan in force does without comes back by a ramp",
			setup: func(b *plannerBench) {
				b.plan = &steer.Plan{SpecVersion: 1, Regions: []string{"virginia", "frankfurt", "tokyo"}, Without: []string{"virginia"}}
			},
			check: func(first, second *steer.Input) bool {
				r := first.Regions[virginia].Ramp
				return r > 0 && r < 1 && first.Regions[1].Ramp == 0
			},
		},
		{
			name: "smooth: a wait counts by its moving average",
			next: func(b *plannerBench) { b.reports["virginia"].Models[0].Ahead[spec.Standard] = 100_000 },
			check: func(first, second *steer.Input) bool {
				w := second.Regions[virginia].Models[0].Wait
				return first.Regions[virginia].Models[0].Wait == 0 && w > 0 && w < 5
			},
		},
		{
			name:  "calm: demand that chance explains counts by its moving average",
			setup: func(b *plannerBench) { b.ask("virginia", 2000) },
			next:  func(b *plannerBench) { b.ask("virginia", 3000) },
			check: func(first, second *steer.Input) bool {
				return first.Demand[0].Rate == 2000 && second.Demand[0].Rate > 2000 && second.Demand[0].Rate < 2500
			},
		},
		{
			name: "calm: a learned rate that trembles counts by its moving average",
			next: func(b *plannerBench) { b.reports["virginia"] = capacityOf(12_000, 8) },
			check: func(first, second *steer.Input) bool {
				rate := second.Regions[virginia].Models[0].Rate
				return first.Regions[virginia].Models[0].Rate == 10_000 && rate > 10_000 && rate < 11_000
			},
		},
		{
			name:  "bounds: capacity beyond what the fleet shows is not counted",
			setup: func(b *plannerBench) { b.reports["virginia"] = capacityOf(10_000_000, 8) },
			check: func(first, second *steer.Input) bool { return first.Regions[virginia].Models[0].Rate < 1_000_000 },
		},
		{
			name: "bounds: demand that the region cannot see stays in the region",
			setup: func(b *plannerBench) {
				b.ask("tokyo", 1000)
				b.reports["virginia"].Demand = slices.Clone(b.reports["tokyo"].Demand)
				b.reports["virginia"].Demand[0].TokensPerSec = 1e12
			},
			check: func(first, second *steer.Input) bool {
				sum := 0.0
				for _, d := range second.Demand {
					if d.Service != "" {
						sum += d.Rate
					}
				}
				return sum > 1000 && sum < 2000
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newPlannerBench(t)
			if c.setup != nil {
				c.setup(b)
			}
			first := b.input(b.view(), b.now)
			b.now = b.now.Add(time.Second)
			if c.next != nil {
				c.next(b)
			}
			if second := b.input(b.view(), b.now); !c.check(first, second) {
				t.Errorf("first %+v %+v\nthen %+v %+v", first.Regions, first.Demand, second.Regions, second.Demand)
			}
		})
	}
}

// TestPlanningBlockedIsTold: what keeps plans from being made shows in status, metric and log; a region that only one
// node reports, and that the plan in force does without, keeps them no longer than half a minute.
func TestPlanningBlockedIsTold(t *testing.T) {
	for _, without := range []bool{false, true} {
		b := newPlannerBench(t)
		delete(b.reports, "tokyo")
		b.quorum.others["g2"] = testimony{Settled: true, Heard: []string{"tokyo/gt"}}
		if b.plan = (&steer.Plan{SpecVersion: 1, Regions: []string{"virginia", "frankfurt", "tokyo"}}); without {
			b.plan.Without = []string{"tokyo"}
		}
		for range 29 {
			b.planner.plan(t.Context(), b.view(), b.now)
			b.now = b.now.Add(time.Second)
		}
		if b.log.Len() > 0 || b.s.planBlock.Load().note(b.now) != "" || len(b.stub.plans) != 0 {
			t.Fatalf("after %s: %d plans, log %s", 29*time.Second, len(b.stub.plans), b.log.String())
		}
		for range 121 {
			b.planner.plan(t.Context(), b.view(), b.now)
			b.now = b.now.Add(time.Second)
		}
		note, seconds := b.s.planBlock.Load().note(b.now), b.s.planBlock.Load().seconds(b.now)
		if !strings.Contains(note, "tokyo") || !strings.Contains(note, "g2") {
			t.Errorf("status notes %q", note)
		}
		if n := strings.Count(b.log.String(), "level=WARN"); n != 2 {
			t.Errorf("%d warnings in two minutes, want 2: %s", n, b.log.String())
		}
		if planned := len(b.stub.plans) > 0; planned != without {
			t.Errorf("plans are made: %v, want %v", planned, without)
		}
		if want := 150.0; without && seconds != 0 || !without && math.Abs(seconds-want) > 1 {
			t.Errorf("blocked for %g s", seconds)
		}
		b.reports["tokyo"] = capacityOf(10_000, 8)
		b.planner.plan(t.Context(), b.view(), b.now)
		if note := b.s.planBlock.Load().note(b.now); note != "" || !strings.Contains(b.log.String(), "nothing blocks planning any more") {
			t.Errorf("when the region is heard status notes %q; log %s", note, b.log.String())
		}
	}
}

// TestExcessIsLogged: a region that reports too much is warned of at most once a minute, with the figures.
func TestExcessIsLogged(t *testing.T) {
	b := newPlannerBench(t)
	b.reports["virginia"] = capacityOf(10_000_000, 8)
	for range 90 {
		b.input(b.view(), b.now)
		b.now = b.now.Add(time.Second)
	}
	text := b.log.String()
	if n := strings.Count(text, "level=WARN"); n != 2 {
		t.Errorf("%d warnings in 90 s, want 2", n)
	}
	for _, want := range []string{"region=virginia", "model=m1", "reported_tokens_per_second=10000000", "counted_tokens_per_second=100000", "max_workers"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q: %s", want, text)
		}
	}
}
