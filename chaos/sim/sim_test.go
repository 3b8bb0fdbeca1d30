package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
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
