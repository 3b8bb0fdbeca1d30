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

	"github.com/spillway-lb/spillway/chaos/bench/dnsload"
	"github.com/spillway-lb/spillway/chaos/bench/machine"
	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/testkit"
)

const (
	swapNets    = 20_000  // networks that the atlas distinguishes
	swapSubnets = 100_000 // networks that send queries
	swapEvery   = 200 * time.Millisecond
)

// TestPlanSwapsUnderLoad has 100,000 client subnets query a node while the cluster agrees on another plan every 200
// ms: every query is answered. With SPILLWAY_SWAPS=N it takes N rounds with swaps and N without, at a high rate, and
// reports how the 99th percentiles compare.
func TestPlanSwapsUnderLoad(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("load is generated on Linux only")
	}
	turns, rate, span := 1, 500.0, 700*time.Millisecond
	if n, err := strconv.Atoi(os.Getenv("SPILLWAY_SWAPS")); err == nil {
		turns, rate, span = n, 30_000, 2*time.Second
		machine.RaisePriority()
	}
	// The load generator polls without pause and is not part of the node: it gets its own core.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1))
	p := &testFleet{t: t, dir: t.TempDir(), gateways: map[string]*fakeGateway{}}
	s, asked := p.newBusyNode()
	defer p.stopNode(s)
	for region, gw := range map[string]string{"virginia": "gv", "frankfurt": "gf", "tokyo": "gt"} {
		p.gateways[region] = p.newFakeGateway(region, gw)
	}
	testkit.Eventually(t, "the node leads and answers", func() bool {
		v := s.snapshot.Load()
		return v != nil && s.node.IsLeader() && v.Version > 0 && answeredRegion(s, clientAddrs["tokyo"]) == "tokyo"
	})

	if turns > 1 {
		s.logSwapCost(t, 500)
		pinToOwnCore(t)
	}
	to := s.dns.Addrs()[0]
	l := dnsload.QueryLoad{Server: to, Name: testService, Subnets: asked, Rate: rate, Timeout: 10 * time.Second}
	var ratios []float64
	for range turns {
		quiet, err := l.RunFor(t.Context(), span)
		if err != nil {
			t.Fatal(err)
		}
		before := s.node.State().PlanEpoch
		stop := s.swapPlans(t)
		busy, err := l.RunFor(t.Context(), span)
		stop()
		if err != nil {
			t.Fatal(err)
		}
		swaps := s.node.State().PlanEpoch - before
		t.Logf("quiet: %s\n%d swaps: %s", &quiet, swaps, &busy)
		if swaps < 2 || quiet.Lost+busy.Lost+quiet.Malformed+busy.Malformed != 0 || quiet.Answered == 0 || busy.Answered != busy.Sent {
			t.Errorf("queries were lost, or plans not swapped")
		}
		ratios = append(ratios, busy.P99.Seconds()/quiet.P99.Seconds())
	}
	slices.Sort(ratios)
	t.Logf("p99 with a swap every %s, of p99 without: median %.2f [%.2f..%.2f] of %d turns, target 1.5", swapEvery,
		ratios[turns/2], ratios[0], ratios[turns-1], turns)
}

// newBusyNode is a single node with a large atlas, and subnets of it to query for.
func (p *testFleet) newBusyNode() (*Server, []uint32) {
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
		nets[i] = geo.Override{Prefix: prefix, Location: geo.Location{Lat: rng.Float64()*120 - 60, Lon: rng.Float64()*360 - 180}}
	}
	asked := make([]uint32, swapSubnets)
	for i := range asked {
		asked[i] = 11<<16 + rng.Uint32N(80<<16)
	}
	atlas, err := geofiles.NewLiveAtlas(geo.Config{Demo: true, Overrides: nets})
	if err != nil {
		p.t.Fatal(err)
	}
	s := p.newNodeOn("g1", "127.0.0.1:0", "", strings.Replace(testSpecText(), "interval: 200ms", "interval: 10s", 1), atlas)
	s.SetPeers([]consensus.RaftPeer{{ID: "g1", Addr: s.RaftAddr().String()}})
	if err := s.Start(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	p.nodes = append(p.nodes, s)
	return s, asked
}

// swapPlans has the cluster agree on another plan repeatedly, until stop.
func (s *Server) swapPlans(t *testing.T) (stop func()) {
	plans := s.makeSwapPlans(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; sleepFor(ctx, swapEvery); i++ {
			_, err := s.node.PutPlan(ctx, s.node.State().PlanEpoch, plans[i%len(plans)], consensus.Attribution{Actor: "test", Reason: "swap"}, "")
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

// logSwapCost logs the cost of one swap at a node without queries: from the proposal to the snapshot.
func (s *Server) logSwapCost(t *testing.T, n int) {
	plans := s.makeSwapPlans(t)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun, used, first := time.Now(), processorTime(), s.node.State().PlanEpoch
	for i := range n {
		epoch, err := s.node.PutPlan(t.Context(), s.node.State().PlanEpoch, plans[i%len(plans)], consensus.Attribution{Actor: "test", Reason: "swap"}, "")
		if err != nil && !errors.As(err, new(consensus.ErrConflict)) { // the node's own planner may be faster
			t.Fatal(err)
		}
		for s.snapshot.Load().state.PlanEpoch < epoch {
			runtime.Gosched() // a poll interval would be part of the measured time
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

// makeSwapPlans makes the plans in advance, because applying them is measured; more of them than a node caches.
func (s *Server) makeSwapPlans(t *testing.T) (plans [24][]byte) {
	for i := range plans {
		var err error
		if plans[i], err = steer.EncodePlan(s.makeSwapPlan(i)); err != nil {
			t.Fatal(err)
		}
	}
	return plans
}

// makeSwapPlan splits every second cell of the atlas among all regions, differently for each i.
func (s *Server) makeSwapPlan(i int) *steer.Plan {
	v := s.snapshot.Load()
	out := &steer.Plan{SpecVersion: v.Version}
	one := steer.ServicePlan{Name: testService}
	for r := range v.Spec.Regions {
		out.Regions = append(out.Regions, v.Spec.Regions[r].Name)
		one.Wait, one.Price = append(one.Wait, 0), append(one.Price, 0)
	}
	n, weight := len(out.Regions), uint16(20+i)
	shares := func(turn int) []steer.RegionShare {
		all := make([]steer.RegionShare, n)
		for r := range all {
			all[r] = steer.RegionShare{Region: uint16(r), Weight: weight}
		}
		all[turn%n].Weight = uint16(steer.WeightSum - int(weight)*(n-1))
		return all
	}
	one.Spread = shares(i)
	for k, c := range v.atlas.Cells() {
		if k%2 == 0 {
			one.Rows = append(one.Rows, steer.CellRow{Cell: c.Name, Shares: shares(i + k)})
		}
	}
	slices.SortFunc(one.Rows, func(a, b steer.CellRow) int { return strings.Compare(a.Cell, b.Cell) })
	out.Services = []steer.ServicePlan{one}
	return out
}
