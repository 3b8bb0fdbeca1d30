package sim

import (
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
)

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
