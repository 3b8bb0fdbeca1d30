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

// arrivals are the requests of a source that waits for no answer.
type arrivals struct {
	source load.Source
	head   *load.Request
	err    error
	n      uint64
}

func (a *arrivals) Peek() (time.Duration, bool, error) {
	if a.head == nil && a.err == nil {
		var x load.Arrival
		if x, a.err = a.source.Next(); a.err == nil {
			a.n++
			a.head = &load.Request{At: x.At, ID: a.n, Session: x.Prompt[0].ID, Prompt: x.Prompt, PromptTokens: x.PromptTokens(), Output: x.Output}
		}
	}
	if a.head == nil {
		if errors.Is(a.err, io.EOF) {
			return 0, false, nil
		}
		return 0, false, a.err
	}
	return a.head.At, true, nil
}

func (a *arrivals) Pop() *load.Request {
	x := a.head
	a.head = nil
	return x
}

func (a *arrivals) Ended(*load.Request, time.Duration, bool) {}

func poisson(tb testing.TB, p load.Poisson) *arrivals {
	tb.Helper()
	s, err := load.NewPoisson(p)
	if err != nil {
		tb.Fatal(err)
	}
	return &arrivals{source: s}
}

// chat is one zone of n L4 that is asked for shared prefixes.
func chat(tb testing.TB, n int, rate float64, seed uint64) Scenario {
	tb.Helper()
	return Scenario{
		Fleet: one(n, "L4", "Llama-3.1-8B"), Seed: seed, Duration: 60 * time.Second, SLO: SLO{TTFT: 2 * time.Second, TPOT: 200 * time.Millisecond},
		Workload: poisson(tb, load.Poisson{
			Rate: rate, Prompt: load.Lengths{Median: 600, P90: 1500, Max: 4000}, Output: load.Lengths{Median: 60, P90: 200, Max: 600}, Groups: 20, PrefixTokens: 400, Seed: seed,
		}),
	}
}

func one(n int, kind, model string) Fleet {
	return Fleet{Regions: []Region{{Name: "here", Zones: []Zone{{Name: "a", Groups: []Group{{Count: n, GPU: kind, Model: model}}}}}}}
}

func play(tb testing.TB, s Scenario) *Result {
	tb.Helper()
	r, err := Run(tb.Context(), s, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// TestTheSameSeedIsTheSameBytes: nothing but the scenario decides what comes out.
func TestTheSameSeedIsTheSameBytes(t *testing.T) {
	var first []byte
	for i, procs := range []int{2, 1, 2} {
		was := runtime.GOMAXPROCS(procs)
		out, err := json.Marshal(play(t, chat(t, 4, 8, 7)))
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
	if other, _ := json.Marshal(play(t, chat(t, 4, 8, 8))); bytes.Equal(first, other) {
		t.Fatal("another seed comes to the same: the seed is not used")
	}
}

// TestEveryRequestEndsOnce: under each policy and at twice what the zone can do, all that was sent is accounted for.
func TestEveryRequestEndsOnce(t *testing.T) {
	for _, policy := range Policies() {
		s := chat(t, 3, 25, 3)
		s.Policy, s.Duration = policy, 20*time.Second
		placed := map[uint64]int{}
		s.OnDecision = func(d Decision) { placed[d.Request]++ }
		r := play(t, s)
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

// TestAffinityHitsAndRoundRobinMisses: what the policies are for shows.
func TestAffinityHitsAndRoundRobinMisses(t *testing.T) {
	rates := map[string]float64{}
	for _, policy := range []string{"round_robin", "predictive"} {
		s := chat(t, 8, 12, 5)
		s.Policy = policy
		r := play(t, s)
		rates[policy] = r.HitRate
		p99, _ := r.TTFT.Quantile(.99)
		t.Logf("%s: hit %.3f (believed %.3f), imbalance %.2f, ttft p99 %v, good %.3f", policy, r.HitRate, r.Believed, r.Imbalance, p99, r.Attainment)
	}
	if rates["predictive"] < rates["round_robin"] {
		t.Errorf("hit rates: %v", rates)
	}
}

// TestMistakesAreNamed: what makes no run says what to write instead.
func TestMistakesAreNamed(t *testing.T) {
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
		"silence":     {func(s *Scenario) { s.Workload = &arrivals{err: io.EOF} }, "nothing was measured"},
		"bad trace":   {func(s *Scenario) { s.Workload = &arrivals{err: errors.New("line 3: what")} }, "line 3"},
		"negative":    {func(s *Scenario) { s.SLO.TTFT = -1 }, "may be negative"},
	} {
		s := chat(t, 2, 2, 1)
		c.break_(&s)
		if _, err := Run(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestStopsWhenAsked: a caller that has lost patience gets an error and no half result.
func TestStopsWhenAsked(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := chat(t, 4, 8, 1)
	r, err := Run(ctx, s, func(float64) { cancel() })
	if r != nil || !errors.Is(err, context.Canceled) {
		t.Fatalf("a result: %v; %v", r != nil, err)
	}
}

// TestAHostTierHitsMore: what leaves the GPU's memory is found in the host's.
func TestAHostTierHitsMore(t *testing.T) {
	var rates [2]float64
	for i, blocks := range []int{0, 50_000} {
		s := chat(t, 2, 3, 4)
		s.Fleet.Regions[0].Zones[0].Groups[0].Blocks, s.Fleet.Regions[0].Zones[0].Groups[0].HostBlocks = 600, blocks
		rates[i] = play(t, s).HitRate
	}
	t.Logf("hit rates %.3f", rates)
	if rates[1] <= rates[0] {
		t.Errorf("hit rates %v", rates)
	}
}
