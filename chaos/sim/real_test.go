package sim

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/chaos/memnet"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/pick"
)

// kinds are the workers of the zone that is run twice: of unlike speeds, so that hardly a choice is left to chance.
var kinds = []string{"L4", "L40S", "A100", "H100", "B200"}

const twinModel = "Llama-3.1-8B"

// settled is when the first request of a twin run is due: warm-ups and slow starts are over.
const settled = 20 * time.Second

// twinLoad is the requests of both runs: chats with shared beginnings, seconds apart by the mean, with bursts.
type twinLoad struct {
	source load.Source
	after  time.Duration // the Agent was started so long before the load
}

func (s *twinLoad) Next() (load.Arrival, error) {
	a, err := s.source.Next()
	if err == nil {
		a.At += settled + s.after
	}
	return a, err
}

func newTwinLoad(t *testing.T, rate float64, seed uint64) *twinLoad {
	s, err := load.NewPoisson(load.Poisson{
		Rate: rate, For: 40 * time.Second, Prompt: load.Lengths{Median: 900, P90: 3000, Max: 8000}, Output: load.Lengths{Median: 50, P90: 150, Max: 300},
		Groups: 6, PrefixTokens: 700, Seed: seed,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &twinLoad{source: s}
}

// twinSeed is the seed of the one zone's instance in a scenario of that seed.
func twinSeed(seed uint64) uint64 {
	r := run{s: &Scenario{Seed: seed}}
	return r.seedOf(&agent{})
}

// real runs the requests through an Agent and stand-in workers over HTTP, in virtual time, and returns the worker of each,
// and how long after the Agent's start the load began.
func real(t *testing.T, policy string, rate float64, seed uint64) (chosen []string, ttft Dist, after time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		n := &memnet.Net{}
		cfg := local.Config{
			Name: "l1", Region: "here", Zone: "a", Plain: true, Policy: policy,
			Seed: twinSeed(seed), Listen: "10.0.0.1:8080", Network: n.Host(netip.MustParseAddr("10.0.0.1")),
		}
		stop := func(x interface{ Stop(context.Context) error }) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if err := x.Stop(ctx); err != nil {
				t.Error(err)
			}
		}
		for i, kind := range kinds {
			l, err := n.Listen(fmt.Sprintf("10.0.1.%d:8000", i+1))
			if err != nil {
				t.Fatal(err)
			}
			w, err := gpu.New(gpu.Config{Listener: l, GPU: kind, Model: twinModel, Seed: uint64(i), Apart: 1})
			if err == nil {
				err = w.Start(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			defer stop(w)
			cfg.Workers = append(cfg.Workers, discover.Worker{Name: fmt.Sprintf("w%04d", i+1), URL: w.URL(), GPU: kind, Weight: 1})
		}
		started := time.Now()
		a, err := local.New(cfg)
		if err == nil {
			err = a.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		defer stop(a)
		for ready := 0; ready < len(kinds); time.Sleep(50 * time.Millisecond) {
			ready = 0
			for _, w := range a.Status().Workers {
				if w.State == admin.StateReady {
					ready++
				}
			}
		}
		var mu sync.Mutex
		by := map[time.Time]load.Outcome{}
		g, err := load.New(load.Config{
			Source: newTwinLoad(t, rate, seed), Target: load.Target{URLs: []string{"http://" + a.Addr().String()}}, Models: []string{twinModel}, Path: "/v1/completions",
			Dial: n.DialContext, Stream: true, Retries: -1, Timeout: time.Minute,
			OnOutcome: func(o load.Outcome) {
				mu.Lock()
				defer mu.Unlock()
				by[o.Due] = o
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		after = begun.Sub(started)
		if err := g.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := newTwinLoad(t, rate, seed)
		for {
			x, err := again.Next()
			if err == io.EOF {
				break
			}
			o, ok := by[begun.Add(x.At)]
			if !ok || o.Verdict != "ok" {
				t.Fatalf("the request due at %v: %v %+v", x.At, ok, o)
			}
			chosen = append(chosen, o.Route[strings.LastIndexByte(o.Route, '/')+1:])
			ttft.add(o.First.Sub(o.Due))
		}
	})
	return chosen, ttft, after
}

// twinKey is what an Agent that stands alone keeps a request of no session together by: the first KiB of its prompt, which begins
// and ends with quotes in the body.
func twinKey(q *load.Request) uint64 {
	text := append(load.AppendText([]byte{'"'}, q.Prompt), '"')
	return pick.KeyOf(pick.Seed(0, spec.TenantAlone, twinModel), text[:min(len(text), 1024)])
}

// simulated runs the same requests through the simulator, so long after the zone has started.
func simulated(t *testing.T, policy string, rate float64, seed uint64, after time.Duration) (chosen []string, ttft Dist) {
	var z Zone
	z.Name = "a"
	for _, kind := range kinds {
		z.Groups = append(z.Groups, Group{Count: 1, GPU: kind, Model: twinModel})
	}
	at := map[uint64]string{}
	later := newTwinLoad(t, rate, seed)
	later.after = after
	r := play(t, Scenario{
		Fleet: Fleet{Regions: []Region{{Name: "here", Zones: []Zone{z}}}}, Seed: seed, Policy: policy, Duration: settled + time.Minute,
		Workload: &arrivals{source: later}, Limits: func(q *load.Request) int { return q.Output },
		Class: func(*load.Request) spec.Class { return spec.Standard },                              // who names none gets it
		noise: func(worker int) *rand.Rand { return rand.New(rand.NewPCG(uint64(worker), 0x5717)) }, // gpu.Server's own
		key:   twinKey, warms: true,
		OnDecision: func(d Decision) { at[d.Request] = d.Worker },
	})
	for id := range uint64(len(at)) {
		chosen = append(chosen, at[id+1])
	}
	return chosen, r.TTFT
}

// TestTheSimulatorChoosesAsTheAgentDoes plays one log of requests through an Agent with its sockets and through the
// simulator, with the same seed, under each policy there is. The same worker must be chosen for every request, also where
// chance breaks a tie, and the first token must come at the same time, but for the API server's, which the simulator adds.
// Engines emit several first tokens in one step, and an Agent learns of them in the order that it hears of them: the
// stand-ins send them a nanosecond apart, or that order were up to goroutines.
func TestTheSimulatorChoosesAsTheAgentDoes(t *testing.T) {
	type twin struct {
		policy string
		rate   float64
	}
	list := []twin{{"round_robin", 1}, {"predictive", 1}, {"predictive", 6}, {"predictive", 20}, {"power_of_two", 6}, {"prefix_affinity", 6}}
	if !raceOn {
		for _, p := range pick.Policies() {
			if !slices.ContainsFunc(list, func(c twin) bool { return c.policy == p && c.rate > 1 }) {
				list = append(list, twin{p, 6})
			}
		}
	}
	for _, c := range list {
		a, real, after := real(t, c.policy, c.rate, 4)
		b, sim := simulated(t, c.policy, c.rate, 4, after)
		same := 0
		for i := range min(len(a), len(b)) {
			if a[i] == b[i] {
				same++
			}
		}
		t.Logf("%s at %v/s: %d of %d choices alike; mean time to first token %v and %v", c.policy, c.rate, same, len(a), real.Mean(), sim.Mean())
		if len(a) < 30 || same != max(len(a), len(b)) {
			t.Errorf("%s at %v/s: %d of %d and %d choices alike", c.policy, c.rate, same, len(a), len(b))
		}
		if late := (sim.Mean() - gpu.PerToken - real.Mean()).Abs(); late > time.Microsecond {
			t.Errorf("%s at %v/s: the mean time to first token differs by %v", c.policy, c.rate, late)
		}
	}
}
