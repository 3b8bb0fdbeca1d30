package sim

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/chaos/load"
)

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
