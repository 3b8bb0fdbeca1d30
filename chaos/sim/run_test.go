package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/testkit"
	"pgregory.net/rapid"
)

// openLoopArrivals are the requests of a source that does not wait for answers.
type openLoopArrivals struct {
	source      load.ArrivalSource
	nextRequest *load.Request
	err         error
	lastID      uint64
}

func (a *openLoopArrivals) Peek() (time.Duration, bool, error) {
	if a.nextRequest == nil && a.err == nil {
		var x load.Arrival
		if x, a.err = a.source.NextArrival(); a.err == nil {
			a.lastID++
			a.nextRequest = &load.Request{At: x.At, ID: a.lastID, Session: x.Prompt[0].ID, Prompt: x.Prompt, PromptTokens: x.PromptTokens(), Output: x.Output}
		}
	}
	if a.nextRequest == nil {
		if errors.Is(a.err, io.EOF) {
			return 0, false, nil
		}
		return 0, false, a.err
	}
	return a.nextRequest.At, true, nil
}

func (a *openLoopArrivals) Pop() *load.Request {
	x := a.nextRequest
	a.nextRequest = nil
	return x
}

func (a *openLoopArrivals) FinishRequest(*load.Request, time.Duration, bool) {}

func newPoissonArrivals(tb testing.TB, p load.PoissonConfig) *openLoopArrivals {
	tb.Helper()
	s, err := load.NewPoissonSource(p)
	if err != nil {
		tb.Fatal(err)
	}
	return &openLoopArrivals{source: s}
}

// chatScenario is one zone of n L4 under a load with shared prefixes.
func chatScenario(tb testing.TB, n int, rate float64, seed uint64) Scenario {
	tb.Helper()
	return Scenario{
		Fleet: singleZoneFleet(n, "L4", "Llama-3.1-8B"), Seed: seed, Duration: 60 * time.Second, SLO: GoodputSLO{TTFT: 2 * time.Second, TPOT: 200 * time.Millisecond},
		Workload: newPoissonArrivals(tb, load.PoissonConfig{
			Rate: rate, Prompt: load.LengthDist{Median: 600, P90: 1500, Max: 4000}, Output: load.LengthDist{Median: 60, P90: 200, Max: 600}, Groups: 20, PrefixTokens: 400, Seed: seed,
		}),
	}
}

func singleZoneFleet(n int, kind, model string) Fleet {
	return Fleet{Regions: []FleetRegion{{Name: "here", Zones: []FleetZone{{Name: "a", Groups: []WorkerGroup{{Count: n, GPU: kind, Model: model}}}}}}}
}

func runScenario(tb testing.TB, s Scenario) *RunResult {
	tb.Helper()
	r, err := Run(tb.Context(), s, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// TestSameSeedGivesSameResult: the scenario alone determines the result.
func TestSameSeedGivesSameResult(t *testing.T) {
	var first []byte
	for i, procs := range []int{2, 1, 2} {
		was := runtime.GOMAXPROCS(procs)
		out, err := json.Marshal(runScenario(t, chatScenario(t, 4, 8, 7)))
		runtime.GOMAXPROCS(was)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = out
		} else if !bytes.Equal(first, out) {
			t.Fatalf("run %d differs:\n%s\n%s", i, first, out)
		}
	}
	if other, _ := json.Marshal(runScenario(t, chatScenario(t, 4, 8, 8))); bytes.Equal(first, other) {
		t.Fatal("another seed comes to the same: the seed is not used")
	}
}

// TestEveryRequestEndsOnceUnderOverload: under each policy and at twice the zone's capacity, every request is
// counted.
func TestEveryRequestEndsOnceUnderOverload(t *testing.T) {
	for _, policy := range PolicyNames() {
		s := chatScenario(t, 3, 25, 3)
		s.Policy, s.Duration = policy, 20*time.Second
		placed := map[uint64]int{}
		s.OnDecision = func(d PlacementDecision) { placed[d.RequestID]++ }
		r := runScenario(t, s)
		if r.All.Sent < 300 || r.All.Completed == 0 || r.All.Unfinished != 0 || r.Policy != policy {
			t.Errorf("%s: %+v", policy, r.All)
		}
		for id, n := range placed {
			if n != 1 {
				t.Errorf("%s: request %d was placed %d times though no worker broke", policy, id, n)
			}
		}
		if int64(len(placed)) != r.All.Completed {
			t.Errorf("%s: %d placed, %d completed", policy, len(placed), r.All.Completed)
		}
	}
}

// TestPredictiveHitsCacheMoreThanRoundRobin: the policies differ as intended.
func TestPredictiveHitsCacheMoreThanRoundRobin(t *testing.T) {
	rates := map[string]float64{}
	for _, policy := range []string{"round_robin", "predictive"} {
		s := chatScenario(t, 8, 12, 5)
		s.Policy = policy
		r := runScenario(t, s)
		rates[policy] = r.HitRate
		p99, _ := r.TTFT.Quantile(.99)
		t.Logf("%s: hit %.3f (predicted %.3f), imbalance %.2f, ttft p99 %v, good %.3f", policy, r.HitRate, r.PredictedHitRate, r.Imbalance, p99, r.Attainment)
	}
	if rates["predictive"] < rates["round_robin"] {
		t.Errorf("hit rates: %v", rates)
	}
}

// TestScenarioErrorsSayWhatToChange: errors for invalid scenarios name what to change.
func TestScenarioErrorsSayWhatToChange(t *testing.T) {
	for name, c := range map[string]struct {
		break_ func(*Scenario)
		want   string
	}{
		"no workload": {func(s *Scenario) { s.Workload = nil }, "give it one"},
		"no duration": {func(s *Scenario) { s.Duration = 0 }, "use more than 0"},
		"all warm-up": {func(s *Scenario) { s.WarmUp = s.Duration }, "less than the duration"},
		"policy":      {func(s *Scenario) { s.Policy = "best" }, "write one of"},
		"GPU":         {func(s *Scenario) { s.Fleet.Regions[0].Zones[0].Groups[0].GPU = "H7" }, "use one of"},
		"no workers":  {func(s *Scenario) { s.Fleet.Regions[0].Zones[0].Groups = nil }, "count of 1 or more"},
		"no region":   {func(s *Scenario) { s.Fleet = Fleet{} }, "give it one"},
		"twice":       {func(s *Scenario) { s.Fleet.Regions = append(s.Fleet.Regions, s.Fleet.Regions[0]) }, "a name of its own"},
		"model":       {func(s *Scenario) { s.Models = []string{"gpt-9"} }, "no worker serves"},
		"silence":     {func(s *Scenario) { s.Workload = &openLoopArrivals{err: io.EOF} }, "nothing was measured"},
		"bad trace":   {func(s *Scenario) { s.Workload = &openLoopArrivals{err: errors.New("line 3: what")} }, "line 3"},
		"negative":    {func(s *Scenario) { s.SLO.TTFT = -1 }, "may be negative"},
	} {
		s := chatScenario(t, 2, 2, 1)
		c.break_(&s)
		if _, err := Run(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestRunStopsWhenContextEnds: a canceled run returns an error and no partial result.
func TestRunStopsWhenContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := chatScenario(t, 4, 8, 1)
	r, err := Run(ctx, s, func(float64) { cancel() })
	if r != nil || !errors.Is(err, context.Canceled) {
		t.Fatalf("a result: %v; %v", r != nil, err)
	}
}

// TestHostMemoryRaisesHitRate: blocks evicted from GPU memory are found in host memory.
func TestHostMemoryRaisesHitRate(t *testing.T) {
	var rates [2]float64
	for i, blocks := range []int{0, 50_000} {
		s := chatScenario(t, 2, 3, 4)
		s.Fleet.Regions[0].Zones[0].Groups[0].KVBlocks, s.Fleet.Regions[0].Zones[0].Groups[0].HostBlocks = 600, blocks
		rates[i] = runScenario(t, s).HitRate
	}
	t.Logf("hit rates %.3f", rates)
	if rates[1] <= rates[0] {
		t.Errorf("hit rates %v", rates)
	}
}

// drawFault draws a fault of a fleet.
func drawFault(t *rapid.T, f *Fleet) Fault {
	r := rapid.SampledFrom(f.Regions).Draw(t, "region")
	z := rapid.SampledFrom(r.Zones).Draw(t, "zone")
	x := Fault{
		At: time.Duration(rapid.IntRange(0, 5000).Draw(t, "at")) * time.Millisecond, For: time.Duration(rapid.IntRange(0, 6000).Draw(t, "for")) * time.Millisecond,
		Kind:   rapid.SampledFrom([]FaultKind{WorkerDead, WorkerStalled, WorkerSlow, ZoneDead, RegionDead, GlobalDead, Partition}).Draw(t, "kind"),
		Region: r.Name, Zone: z.Name, Worker: rapid.IntRange(0, z.countWorkers()-1).Draw(t, "worker"), Factor: 10,
	}
	if x.Kind == Partition {
		x.From = rapid.SampledFrom([]string{"", globalTierName, f.Regions[0].Name}).Draw(t, "from")
	}
	return x
}

// TestEachRequestEndsOnceInRandomScenarios draws fleets, loads, policies and faults. Run itself returns an error when
// the counts are inconsistent; in addition each placement must be of a request that was sent, at a worker that is
// alive.
func TestEachRequestEndsOnceInRandomScenarios(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := threeRegionFleet(rapid.IntRange(1, 2).Draw(rt, "workers"))
		f.Regions = f.Regions[:rapid.IntRange(1, 3).Draw(rt, "regions")]
		for i := range f.Regions {
			f.Regions[i].Zones = f.Regions[i].Zones[:rapid.IntRange(1, 2).Draw(rt, "zones")]
		}
		s := Scenario{
			Fleet: f, Seed: rapid.Uint64().Draw(rt, "seed"), Duration: 5 * time.Second, WarmUp: time.Second, SampleInterval: 2 * time.Second,
			Policy: rapid.SampledFrom(PolicyNames()).Draw(rt, "policy"), AlwaysGateways: rapid.Bool().Draw(rt, "gateways"),
			Steering:  SteeringConfig{Enabled: rapid.Bool().Draw(rt, "steered"), TTL: 5 * time.Second},
			Staleness: ScrapeStaleness{Delay: time.Duration(rapid.IntRange(0, 500).Draw(rt, "delay")) * time.Millisecond},
			Network:   NetworkModel{Loss: rapid.SampledFrom([]float64{0, 0.01, 0.2}).Draw(rt, "loss")},
			Workload: &skewedArrivals{openLoopArrivals: newPoissonArrivals(t, load.PoissonConfig{
				Rate: float64(rapid.IntRange(1, 20).Draw(rt, "rate")), Prompt: load.LengthDist{Median: 500, P90: 4000, Max: 60000}, Output: load.LengthDist{Median: 30, P90: 200, Max: 500}, Groups: 5, PrefixTokens: 300, Seed: 1,
			}), shares: []float64{.5, .3, .2}[:len(f.Regions)]},
		}
		for range rapid.IntRange(0, 4).Draw(rt, "faults") {
			s.Faults = append(s.Faults, drawFault(rt, &f))
		}
		// A series of attempts begins when the client sends, and when a cut stream is resumed. Each may be placed
		// three times: one retry in a zone and one at its gateway. A stream is resumed once by its gateway, and once
		// in each of the two zones that then had it.
		type series struct {
			request   uint64
			ask, made int
		}
		placed, continued := map[series]int{}, map[series]int{}
		s.OnDecision = func(d PlacementDecision) {
			of := series{d.RequestID, d.ClientTry, d.PriorTokens}
			if placed[of]++; placed[of] == 1 && d.PriorTokens > 0 {
				continued[series{d.RequestID, d.ClientTry, 0}]++
			}
		}
		r, err := Run(t.Context(), s, nil)
		if err != nil {
			rt.Fatal(err)
		}
		for of, n := range placed {
			if n > 3 || of.request == 0 || of.request > uint64(r.All.Sent) {
				rt.Fatalf("request %d of %d, asked %d times, with %d tokens made, was placed %d times: one retry at its gateway and one in a zone are allowed",
					of.request, r.All.Sent, of.ask+1, of.made, n)
			}
		}
		for of, n := range continued {
			if n > 3 {
				rt.Fatalf("the stream of request %d was continued %d times: once by its gateway and once in each zone are allowed", of.request, n)
			}
		}
		if r.TTFT.Count() != r.Measured.Completed || r.All.Sent < r.Measured.Sent || r.Good > r.Measured.Completed {
			rt.Fatalf("%d times to first token of %+v, %d good", r.TTFT.Count(), r.Measured, r.Good)
		}
	})
}

// TestDecisionsDoNotDependOnFutureFaults: two runs that differ by a fault from one time on decide alike until then. A
// decider with information from the future, or not yet received, would not.
func TestDecisionsDoNotDependOnFutureFaults(t *testing.T) {
	const from = 12 * time.Second
	run := func(faults ...Fault) (before, all []PlacementDecision) {
		s := threeRegionScenario(t, 16, .8, .1, .1)
		s.Duration, s.Steering, s.Faults = 18*time.Second, SteeringConfig{Enabled: true, TTL: 5 * time.Second}, faults
		s.OnDecision = func(d PlacementDecision) {
			if all = append(all, d); d.At < from {
				before = all
			}
		}
		runScenario(t, s)
		return before, all
	}
	first, all := run()
	for name, f := range map[string]Fault{
		"slow":    {At: from, Kind: WorkerSlow, Factor: 5, Region: "virginia", Zone: "a"},
		"dead":    {At: from, Kind: WorkerDead, Region: "virginia", Zone: "a"},
		"zone":    {At: from, Kind: ZoneDead, Region: "virginia", Zone: "b"},
		"region":  {At: from, Kind: RegionDead, Region: "frankfurt"},
		"cut off": {At: from, Kind: Partition, Region: "virginia"},
	} {
		before, after := run(f)
		if len(first) < 50 || !slices.Equal(first, before) {
			t.Errorf("%s: %d and %d decisions before it, and they differ", name, len(first), len(before))
		}
		if slices.Equal(all, after) {
			t.Errorf("%s: nothing changed after it either: the fault is without effect", name)
		}
	}
}

// TestStaleScrapesLoseNoRequest: a worker's readings arrive Delay later, and change nothing before.
func TestStaleScrapesLoseNoRequest(t *testing.T) {
	for _, policy := range []string{"predictive", "least_queue"} {
		fresh, old := chatScenario(t, 4, 10, 6), chatScenario(t, 4, 10, 6)
		fresh.Policy, old.Policy = policy, policy
		old.Staleness = ScrapeStaleness{Interval: 100 * time.Millisecond, Delay: 500 * time.Millisecond}
		a, b := runScenario(t, fresh), runScenario(t, old)
		x, _ := a.TTFT.Quantile(.99)
		y, _ := b.TTFT.Quantile(.99)
		t.Logf("%s: p99 %v fresh, %v by pages half a second old", policy, x, y)
		if a.All.Completed != a.All.Sent || b.All.Completed != b.All.Sent {
			t.Errorf("%s: %+v, %+v", policy, a.All, b.All)
		}
	}
}

var largeSeconds = flag.Int("large", 0, "simulate so many seconds of 2,010 replicas in 30 regions")

// TestLargeFleet runs thirty regions of 67 replicas each, with gateways, steering and a region that fails, and
// reports the cost: `go test ./chaos/sim -run LargeFleet -large 600 -timeout 60m -v`.
func TestLargeFleet(t *testing.T) {
	seconds := *largeSeconds
	if seconds == 0 {
		t.Skip("minutes of work: -large 600 runs it")
	}
	const regions, each = 30, 67
	var f Fleet
	var parts []float64
	for i := range regions {
		f.Regions = append(f.Regions, FleetRegion{
			Name: fmt.Sprintf("r%02d", i), Lat: float64(i%5)*20 - 35, Lon: float64(i)*11.5 - 170,
			Zones: []FleetZone{{Name: "a", Groups: []WorkerGroup{{Count: each / 2, GPU: "H100", Model: "Llama-3.1-8B"}}}, {Name: "b", Groups: []WorkerGroup{{Count: each - each/2, GPU: "H100", Model: "Llama-3.1-8B"}}}},
		})
		parts = append(parts, 1./regions)
	}
	s := Scenario{
		Fleet: f, Seed: 1, Duration: time.Duration(seconds) * time.Second, SLO: GoodputSLO{TTFT: 2 * time.Second}, PrefixIndexBytes: 16 << 20,
		Steering: SteeringConfig{Enabled: true, TTL: 30 * time.Second, Resolvers: 200},
		Faults:   []Fault{{At: time.Duration(seconds/2) * time.Second, For: time.Duration(seconds/5) * time.Second, Kind: RegionDead, Region: "r07"}},
		Workload: &skewedArrivals{openLoopArrivals: newPoissonArrivals(t, load.PoissonConfig{
			Rate: regions * each * 1.5, Prompt: load.LengthDist{Median: 3000, P90: 9000, Max: 60000}, Output: load.LengthDist{Median: 150, P90: 400, Max: 1000}, Groups: 3000, PrefixTokens: 2000, Seed: 1,
		}), shares: parts},
	}
	begun := time.Now()
	last := -1
	r, err := Run(t.Context(), s, func(done float64) {
		if p := int(done * 20); p > last {
			last = p
			t.Logf("%3d %% after %v", 5*p, time.Since(begun).Round(time.Second))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%d workers, %d events, %v of wall time, %d MiB from the system", len(r.Workers), r.Events, time.Since(begun).Round(time.Second), m.Sys>>20)
	t.Logf("%+v, hit %.3f, good %.4f, ttft %v, spilled %d, plans %d, queries %d", r.All, r.HitRate, r.Attainment, r.TTFT, r.Spilled, r.Plans, r.Queries)
	if m.Sys > 8<<30 {
		t.Errorf("%d MiB of memory, want at most 8 GiB", m.Sys>>20)
	}
}

// BenchmarkZone measures the speed of the simulator: requests per second of wall time, and of CPU time, in a zone of
// 16 workers, with prompts of 7,000 tokens at the median.
func BenchmarkZone(b *testing.B) {
	var sent int64
	begun := testkit.CPUTime()
	for b.Loop() {
		s := Scenario{
			Fleet: singleZoneFleet(16, "H100", "Llama-3.1-8B"), Seed: 1, Duration: 20 * time.Minute, SLO: GoodputSLO{TTFT: 2 * time.Second},
			Workload: newPoissonArrivals(b, load.PoissonConfig{
				Rate: 30, Prompt: load.LengthDist{Median: 7000, P90: 14000, Max: 60000}, Output: load.LengthDist{Median: 150, P90: 400, Max: 1000}, Groups: 100, PrefixTokens: 4000, Seed: 1,
			}),
		}
		r := runScenario(b, s)
		sent += r.All.Sent
		b.Logf("%+v, hit %.3f, ttft %v, good %.3f, %d events", r.All, r.HitRate, r.TTFT, r.Attainment, r.Events)
	}
	b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "requests/s")
	if cpu := testkit.CPUTime() - begun; cpu > 0 {
		b.ReportMetric(float64(sent)/cpu.Seconds(), "requests/cpu-s")
	}
}
