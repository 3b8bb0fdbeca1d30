package global

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/bench/dnsload"
	"github.com/spillway-lb/spillway/chaos/bench/machine"
	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// largeSpec has 10,000 objects in addition to its three regions: tenants with a key and a limit each, models and
// aliases. Versions differ in the tenants' weight.
func largeSpec(weight int) string {
	const tenants, models, aliases = 9000, 100, 900
	var out strings.Builder
	head, _, _ := strings.Cut(testSpecText(), "models:")
	out.WriteString(head + "models:\n")
	for i := range models {
		fmt.Fprintf(&out, "  - {name: m%d}\n", i+1)
	}
	out.WriteString("aliases:\n")
	for i := range aliases {
		fmt.Fprintf(&out, "  - {name: a%d, targets: [{model: m%d, weight: 9}, {model: m%d, weight: 1}]}\n", i, i%models+1, (i+1)%models+1)
	}
	out.WriteString("tenants:\n")
	for i := range tenants {
		fmt.Fprintf(&out, "  - {name: t%d, keys: [%q], weight: %d, limits: {requests_per_minute: %d}}\n", i, spec.HashKey(fmt.Sprintf("sk-large-%024d", i)), 1+i%weight, 100+i)
	}
	out.WriteString("steering: {interval: 200ms, ramp: 0s}\n")
	return out.String()
}

func decodeSpecText(tb testing.TB, text string) *spec.Spec {
	tb.Helper()
	s, err := spec.Decode("large.yaml", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func BenchmarkLargeDecode(b *testing.B) {
	text := largeSpec(2)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		decodeSpecText(b, text)
	}
}

func BenchmarkLargeEncode(b *testing.B) {
	s := decodeSpecText(b, largeSpec(2))
	for b.Loop() {
		spec.Encode(s)
	}
	b.ReportMetric(float64(len(spec.Encode(s))), "bytes")
}

func BenchmarkLargeDiff(b *testing.B) {
	one, two := decodeSpecText(b, largeSpec(2)), decodeSpecText(b, largeSpec(3))
	for b.Loop() {
		if len(spec.DiffSpecs(one, two)) == 0 {
			b.Fatal("no difference")
		}
	}
}

// TestLargeSpecMeetsItsTargets applies specs of 10,000 objects to three nodes over loopback, with their logs on disk,
// and restarts a follower after twenty of them. It prints the durations and compares them with their targets, which
// needs an idle machine: `make large`.
func TestLargeSpecMeetsItsTargets(t *testing.T) {
	if os.Getenv("SPILLWAY_LARGE") == "" {
		t.Skip("measures: run make large")
	}
	p := &testFleet{t: t, dir: t.TempDir(), gateways: map[string]*fakeGateway{}, heartbeat: time.Second}
	var err error
	if p.ca, err = identity.NewDevCA(p.dir, "test.example"); err != nil {
		t.Fatal(err)
	}
	var peers []consensus.RaftPeer
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	for i := range 3 {
		s := p.newNodeIn(fmt.Sprintf("g%d", i+1), "127.0.0.1:0", dirs[i], testSpecText())
		p.nodes = append(p.nodes, s)
		peers = append(peers, consensus.RaftPeer{ID: s.cfg.Name, Addr: s.RaftAddr().String()})
	}
	for _, s := range p.nodes {
		s.SetPeers(peers)
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, s := range p.nodes {
			p.stopNode(s)
		}
	})
	shows := func(s *Server, version uint64) bool {
		v := s.snapshot.Load()
		return v != nil && v.Version >= version && v.source == agreedState
	}
	const patience = time.Minute
	testkit.EventuallyWithin(t, patience, "a first spec is in force", func() bool { return shows(p.nodes[0], 1) && shows(p.nodes[1], 1) && shows(p.nodes[2], 1) })

	const applies = 20
	texts := []string{largeSpec(2), largeSpec(3)}
	var took, everywhere []time.Duration
	used := processorTime()
	version := uint64(0)
	for i := range applies {
		at := p.nodes[i%3] // the leader and both followers in turn
		c := p.adminClient(at)
		begun := time.Now()
		a, err := c.ApplySpec(t.Context(), admin.ApplyRequest{Name: "large.yaml", Text: texts[i%2]})
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begun))
		version = a.Version
		testkit.EventuallyWithin(t, patience, "all nodes show it", func() bool {
			return shows(p.nodes[0], version) && shows(p.nodes[1], version) && shows(p.nodes[2], version)
		})
		everywhere = append(everywhere, time.Since(begun))
	}
	used = processorTime() - used
	slices.Sort(took)
	slices.Sort(everywhere)
	t.Logf("apply of %d bytes: p50 %s, max %s; until every node answers by it p50 %s, max %s; %s of processor time each, for all three nodes", len(texts[0]),
		took[applies/2].Round(time.Millisecond), took[applies-1].Round(time.Millisecond), everywhere[applies/2].Round(time.Millisecond), everywhere[applies-1].Round(time.Millisecond), (used / applies).Round(time.Millisecond))

	var restarts []time.Duration
	used = processorTime()
	for range 5 {
		at := (slices.Index(p.nodes, p.awaitLeader()) + 1) % 3
		addr := p.nodes[at].RaftAddr().String()
		p.stopNode(p.nodes[at])
		specCache.clearCache()
		planCache.clearCache()
		begun := time.Now()
		s := p.newNodeIn(p.nodes[at].cfg.Name, addr, dirs[at], testSpecText())
		p.nodes[at] = s
		s.SetPeers(peers)
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		testkit.EventuallyWithin(t, patience, "it follows", func() bool { return shows(s, version) && s.node.Leader() != "" })
		restarts = append(restarts, time.Since(begun))
	}
	slices.Sort(restarts)
	t.Logf("restart of a follower with %d such specs in its log: p50 %s, max %s; %s of processor time each, including concurrent work", applies,
		restarts[2].Round(time.Millisecond), restarts[4].Round(time.Millisecond), ((processorTime() - used) / 5).Round(time.Millisecond))
	if took[applies/2] > time.Second || restarts[2] > 3*time.Second {
		t.Error("want an apply under 1s and a restart under 3s")
	}
}

// TestTooLargeSpecIsRefused: a spec that does not fit the log is refused, with its size.
func TestTooLargeSpecIsRefused(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	c := p.adminClient(p.awaitLeader())
	text := strings.Replace(largeSpec(2), "tenants:\n", "tenants:\n"+strings.Repeat("# filler\n", 200_000), 1)
	_, err := c.ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: text})
	if err == nil || !strings.Contains(err.Error(), "more than the 3145728 that are read") {
		t.Errorf("a text beyond the bound: %v", err)
	}
	if os.Getenv("SPILLWAY_LARGE") == "" {
		return // the rest takes long
	}
	var wide strings.Builder
	head, _, _ := strings.Cut(testSpecText(), "tenants:")
	wide.WriteString(head + "tenants:\n")
	for i := range 17000 {
		fmt.Fprintf(&wide, "- {name: t%d, keys: [%q], limits: {concurrency: 9, tokens_per_minute: 7}}\n", i, spec.HashKey(fmt.Sprintf("sk-%024d", i)))
	}
	_, err = c.ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: wide.String()})
	if err == nil || !strings.Contains(err.Error(), "over the limit of") {
		t.Errorf("a spec beyond the bound: %v", err)
	}
}

// clearCache empties the cache, as in a new process.
func (r *decodeCache[T]) clearCache() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest = nil
}

// processorTime returns the processor time of this process on all cores.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

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
