package global

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/dnsload"
	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/identity"
)

const (
	swapNets    = 20_000  // networks that the atlas tells apart
	swapSubnets = 100_000 // that ask
	swapEvery   = 200 * time.Millisecond
)

// TestPlanSwapsUnderLoad has 100,000 client subnets ask a node while the group agrees on another plan every 200 ms:
// every query is answered. With SPILLWAY_SWAPS=N it takes N turns with swaps and N without, at a rate that tells, and
// says how the 99th percentile compares.
func TestPlanSwapsUnderLoad(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("load is made on Linux alone")
	}
	turns, rate, span := 1, 500.0, 700*time.Millisecond
	if n, err := strconv.Atoi(os.Getenv("SPILLWAY_SWAPS")); err == nil {
		turns, rate, span = n, 30_000, 2*time.Second
		dnsload.Priority()
	}
	// Whoever asks polls without end, and is no part of the node: it gets a processor of its own.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1))
	p := &planet{t: t, dir: t.TempDir(), gates: map[string]*gate{}}
	s, asked := p.busyNode()
	defer p.stop(s)
	for region, gw := range map[string]string{"virginia": "gv", "frankfurt": "gf", "tokyo": "gt"} {
		p.gates[region] = p.newGate(region, gw)
	}
	eventually(t, 20*time.Second, "the node leads and answers", func() bool {
		v := s.view.Load()
		return v != nil && s.node.IsLeader() && v.version > 0 && region(s, clients["tokyo"]) == "tokyo"
	})

	if turns > 1 {
		s.tellSwapCost(t, 500)
		ownCore(t)
	}
	to := s.dns.Addrs()[0]
	l := dnsload.Load{Server: to, Name: service, Subnets: asked, Rate: rate, Patience: 10 * time.Second}
	var ratios []float64
	for range turns {
		quiet, err := l.Run(t.Context(), span)
		if err != nil {
			t.Fatal(err)
		}
		before := s.node.State().PlanEpoch
		stop := s.swapPlans(t)
		busy, err := l.Run(t.Context(), span)
		stop()
		if err != nil {
			t.Fatal(err)
		}
		swaps := s.node.State().PlanEpoch - before
		t.Logf("quiet: %s\n%d swaps: %s", &quiet, swaps, &busy)
		if swaps < 2 || quiet.Lost+busy.Lost+quiet.Bad+busy.Bad != 0 || quiet.Answered == 0 || busy.Answered != busy.Sent {
			t.Errorf("queries were lost, or plans not swapped")
		}
		ratios = append(ratios, busy.P99.Seconds()/quiet.P99.Seconds())
	}
	slices.Sort(ratios)
	t.Logf("p99 with a swap every %s, of p99 without: median %.2f [%.2f..%.2f] of %d turns, target 1.5", swapEvery,
		ratios[turns/2], ratios[0], ratios[turns-1], turns)
}

// busyNode is a node alone that knows a large atlas, with subnets of it to ask for.
func (p *planet) busyNode() (*Server, []uint32) {
	p.t.Helper()
	var err error
	if p.ca, err = identity.NewDevCA(p.dir, "test.example"); err != nil {
		p.t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(4, 2))
	nets := make([]geo.Override, swapNets)
	for i := range nets {
		a := netip.AddrFrom4([4]byte{byte(11 + rng.IntN(80)), byte(rng.IntN(256)), byte(rng.IntN(256))})
		prefix, _ := a.Prefix(14 + rng.IntN(11))
		nets[i] = geo.Override{Prefix: prefix, Place: geo.Place{Lat: rng.Float64()*120 - 60, Lon: rng.Float64()*360 - 180}}
	}
	asked := make([]uint32, swapSubnets)
	for i := range asked {
		asked[i] = 11<<16 + rng.Uint32N(80<<16)
	}
	atlas, err := geo.NewLive(geo.Config{Demo: true, Overrides: nets})
	if err != nil {
		p.t.Fatal(err)
	}
	s := p.newNodeOn("g1", "127.0.0.1:0", "", strings.Replace(specText(), "interval: 200ms", "interval: 10s", 1), atlas)
	s.SetPeers([]consensus.Peer{{ID: "g1", Addr: s.RaftAddr().String()}})
	if err := s.Start(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	p.nodes = append(p.nodes, s)
	return s, asked
}

// swapPlans has the group agree on another plan again and again, until stop.
func (s *Server) swapPlans(t *testing.T) (stop func()) {
	plans := s.otherPlans(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; sleep(ctx, swapEvery); i++ {
			_, err := s.node.PutPlan(ctx, s.node.State().PlanEpoch, plans[i%len(plans)], consensus.By{Actor: "test", Reason: "swap"}, "")
			if err != nil && ctx.Err() == nil { // the node's own planner was faster
				t.Logf("swap %d: %v", i, err)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// tellSwapCost logs what one swap costs a node that nobody asks anything: from the proposal to the View.
func (s *Server) tellSwapCost(t *testing.T, n int) {
	plans := s.otherPlans(t)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun, used, first := time.Now(), processorTime(), s.node.State().PlanEpoch
	for i := range n {
		epoch, err := s.node.PutPlan(t.Context(), s.node.State().PlanEpoch, plans[i%len(plans)], consensus.By{Actor: "test", Reason: "swap"}, "")
		if err != nil && !errors.As(err, new(consensus.ErrConflict)) { // the node's own planner may be faster
			t.Fatal(err)
		}
		for s.view.Load().state.PlanEpoch < epoch {
			time.Sleep(100 * time.Microsecond)
		}
	}
	took, cpu := time.Since(begun), processorTime()-used
	runtime.ReadMemStats(&after)
	if swaps := s.node.State().PlanEpoch - first; swaps < uint64(n) {
		t.Fatalf("%d swaps of %d took place", swaps, n)
	}
	t.Logf("a swap of a plan of %d bytes: %s of CPU, %s, %d allocations of %d KiB", len(plans[0]), cpu/time.Duration(n),
		took/time.Duration(n), (after.Mallocs-before.Mallocs)/uint64(n), (after.TotalAlloc-before.TotalAlloc)/uint64(n)>>10)
}

// otherPlans are made beforehand, for it is their taking that is measured; and more than a node remembers.
func (s *Server) otherPlans(t *testing.T) (plans [24][]byte) {
	for i := range plans {
		var err error
		if plans[i], err = steer.Encode(s.anotherPlan(i)); err != nil {
			t.Fatal(err)
		}
	}
	return plans
}

// anotherPlan splits every second cell of the atlas among all regions, in a way that turns with i and that no other i has.
func (s *Server) anotherPlan(i int) *steer.Plan {
	v := s.view.Load()
	out := &steer.Plan{SpecVersion: v.version}
	one := steer.Service{Name: service}
	for r := range v.spec.Regions {
		out.Regions = append(out.Regions, v.spec.Regions[r].Name)
		one.Wait, one.Price = append(one.Wait, 0), append(one.Price, 0)
	}
	n, weight := len(out.Regions), uint16(20+i)
	shares := func(turn int) []steer.Share {
		all := make([]steer.Share, n)
		for r := range all {
			all[r] = steer.Share{Region: uint16(r), Weight: weight}
		}
		all[turn%n].Weight = uint16(steer.WeightSum - int(weight)*(n-1))
		return all
	}
	one.Spread = shares(i)
	for k, c := range v.atlas.Cells() {
		if k%2 == 0 {
			one.Rows = append(one.Rows, steer.Row{Cell: c.Name, Shares: shares(i + k)})
		}
	}
	slices.SortFunc(one.Rows, func(a, b steer.Row) int { return strings.Compare(a.Cell, b.Cell) })
	out.Services = []steer.Service{one}
	return out
}
