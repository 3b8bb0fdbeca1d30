package sim

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
)

// BenchmarkZone is the speed that counts: requests per second of wall time, and of one processor's time where others take
// theirs, in a zone of 16 workers, with prompts of 7,000 tokens at the median.
func BenchmarkZone(b *testing.B) {
	var sent int64
	begun := cpuTime(b)
	for b.Loop() {
		s := Scenario{
			Fleet: one(16, "H100", "Llama-3.1-8B"), Seed: 1, Duration: 20 * time.Minute, SLO: SLO{TTFT: 2 * time.Second},
			Workload: poisson(b, load.Poisson{
				Rate: 30, Prompt: load.Lengths{Median: 7000, P90: 14000, Max: 60000}, Output: load.Lengths{Median: 150, P90: 400, Max: 1000}, Groups: 100, PrefixTokens: 4000, Seed: 1,
			}),
		}
		r := play(b, s)
		sent += r.All.Sent
		b.Logf("%+v, hit %.3f, ttft %v, good %.3f, %d events", r.All, r.HitRate, r.TTFT, r.Attainment, r.Events)
	}
	b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "requests/s")
	if cpu := cpuTime(b) - begun; cpu > 0 {
		b.ReportMetric(float64(sent)/cpu.Seconds(), "requests/cpu-s")
	}
}
