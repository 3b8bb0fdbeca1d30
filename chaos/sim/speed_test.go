package sim

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/testkit"
)

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
