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

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/pick"
)

// twinGPUs are the workers of the zone that is run twice: of different speeds, so that few choices are random.
var twinGPUs = []string{"L4", "L40S", "A100", "H100", "B200"}

const twinModel = "Llama-3.1-8B"

// twinWarmUp is when the first request of a twin run is due: warm-ups and slow starts are over.
const twinWarmUp = 20 * time.Second

// twinLoad is the requests of both runs: chats with shared prefixes, seconds apart on average, with bursts.
type twinLoad struct {
	source     load.ArrivalSource
	startDelay time.Duration // from the start of the Agent to the start of the load
}

func (s *twinLoad) NextArrival() (load.Arrival, error) {
	a, err := s.source.NextArrival()
	if err == nil {
		a.At += twinWarmUp + s.startDelay
	}
	return a, err
}

func newTwinLoad(t *testing.T, rate float64, seed uint64) *twinLoad {
	s, err := load.NewPoissonSource(load.PoissonConfig{
		Rate: rate, For: 40 * time.Second, Prompt: load.LengthDist{Median: 900, P90: 3000, Max: 8000}, Output: load.LengthDist{Median: 50, P90: 150, Max: 300},
		Groups: 6, PrefixTokens: 700, Seed: seed,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &twinLoad{source: s}
}

// twinSeed is the seed of the zone's instance in a scenario of the given seed.
func twinSeed(seed uint64) uint64 {
	zones := zoneTier{scenario: &Scenario{Seed: seed}}
	return zones.instanceSeed(&localInstance{})
}

// runThroughAgent sends the requests through an Agent and simulated workers over HTTP, in virtual time, and returns
// the worker of each, and the time from the Agent's start to the start of the load.
func runThroughAgent(t *testing.T, policy string, rate float64, seed uint64) (chosen []string, ttft Distribution, after time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		n := &fleet.MemoryNetwork{}
		cfg := local.Config{
			Name: "l1", Region: "here", Zone: "a", Plain: true, Policy: policy,
			Seed: twinSeed(seed), Listen: "10.0.0.1:8080", Network: n.HostAt(netip.MustParseAddr("10.0.0.1")),
		}
		stop := func(x interface{ Stop(context.Context) error }) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := x.Stop(ctx); err != nil {
				t.Error(err)
			}
		}
		for i, kind := range twinGPUs {
			l, err := n.Listen(fmt.Sprintf("10.0.1.%d:8000", i+1))
			if err != nil {
				t.Fatal(err)
			}
			w, err := gpu.New(gpu.Config{Listener: l, GPU: kind, Model: twinModel, Seed: uint64(i), TokenSpacing: 1})
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
		for ready := 0; ready < len(twinGPUs); time.Sleep(50 * time.Millisecond) {
			ready = 0
			for _, w := range a.Status().Workers {
				if w.State == admin.StateReady {
					ready++
				}
			}
		}
		var mu sync.Mutex
		by := map[time.Time]load.RequestOutcome{}
		g, err := load.NewGenerator(load.Config{
			Source: newTwinLoad(t, rate, seed), Target: load.Target{URLs: []string{"http://" + a.Addr().String()}}, Models: []string{twinModel}, Path: "/v1/completions",
			Dial: n.DialContext, Stream: true, Retries: -1, Timeout: time.Minute,
			OnOutcome: func(o load.RequestOutcome) {
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
			x, err := again.NextArrival()
			if err == io.EOF {
				break
			}
			o, ok := by[begun.Add(x.At)]
			if !ok || o.Kind != "ok" {
				t.Fatalf("the request due at %v: %v %+v", x.At, ok, o)
			}
			chosen = append(chosen, o.Route[strings.LastIndexByte(o.Route, '/')+1:])
			ttft.addValue(o.First.Sub(o.Due))
		}
	})
	return chosen, ttft, after
}

// twinKey is the affinity key of an Agent without gateways for a request without a session: the first KiB of its
// prompt, with the quotes around it in the body.
func twinKey(q *load.Request) uint64 {
	text := append(load.AppendText([]byte{'"'}, q.Prompt), '"')
	return pick.HashAffinityKeyBytes(blockhash.DeriveSeed(0, spec.DefaultTenant, twinModel), text[:min(len(text), 1024)])
}

// runThroughSimulator runs the same requests through the simulator, with the same delay after the zone's start.
func runThroughSimulator(t *testing.T, policy string, rate float64, seed uint64, after time.Duration) (chosen []string, ttft Distribution) {
	var z FleetZone
	z.Name = "a"
	for _, kind := range twinGPUs {
		z.Groups = append(z.Groups, WorkerGroup{Count: 1, GPU: kind, Model: twinModel})
	}
	at := map[uint64]string{}
	later := newTwinLoad(t, rate, seed)
	later.startDelay = after
	r := runScenario(t, Scenario{
		Fleet: Fleet{Regions: []FleetRegion{{Name: "here", Zones: []FleetZone{z}}}}, Seed: seed, Policy: policy, Duration: twinWarmUp + time.Minute,
		Workload: &openLoopArrivals{source: later}, OutputLimit: func(q *load.Request) int { return q.Output },
		ClassOf:     func(*load.Request) spec.Class { return spec.Standard },                              // the default class
		stepNoise:   func(worker int) *rand.Rand { return rand.New(rand.NewPCG(uint64(worker), 0x5717)) }, // as in gpu.Server
		affinityKey: twinKey, scrapeAfterWarmUp: true,
		OnDecision: func(d PlacementDecision) { at[d.RequestID] = d.Worker },
	})
	for id := range uint64(len(at)) {
		chosen = append(chosen, at[id+1])
	}
	return chosen, r.TTFT
}

// TestSimulatorChoosesLikeAgent runs one log of requests through an Agent with its sockets and through the simulator,
// with the same seed, under each policy. The same worker must be chosen for every request, including random ties, and
// the first token must come at the same time, except for the API server's time, which the simulator adds. Engines
// emit several first tokens in one step, and an Agent processes them in order of arrival: the simulated workers send
// them a nanosecond apart, because goroutines would otherwise determine that order.
func TestSimulatorChoosesLikeAgent(t *testing.T) {
	type twin struct {
		policy string
		rate   float64
	}
	list := []twin{{"round_robin", 1}, {"predictive", 1}, {"predictive", 6}, {"predictive", 20}, {"power_of_two", 6}, {"prefix_affinity", 6}}
	if !testkit.RaceDetector {
		for _, p := range spec.WorkerPolicies() {
			if !slices.ContainsFunc(list, func(c twin) bool { return c.policy == p && c.rate > 1 }) {
				list = append(list, twin{p, 6})
			}
		}
	}
	for _, c := range list {
		a, real, after := runThroughAgent(t, c.policy, c.rate, 4)
		b, sim := runThroughSimulator(t, c.policy, c.rate, 4, after)
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
		if late := (sim.Mean() - gpu.PerTokenTime - real.Mean()).Abs(); late > time.Microsecond {
			t.Errorf("%s at %v/s: the mean time to first token differs by %v", c.policy, c.rate, late)
		}
	}
}
