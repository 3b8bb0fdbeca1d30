package pick

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkChoosePercentiles times every single choice of the default policy among 1,000 workers, for a prompt of 8,000
// tokens of which most workers hold a part.
func BenchmarkChoosePercentiles(b *testing.B) {
	v, q := benchFleet(1000)
	rng := testRNG()
	took := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		if len(took) == cap(took) {
			took = took[:0]
		}
		start := time.Now()
		Choose(q, v, t0, rng, nil)
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}

// BenchmarkMatch220KB hashes a prompt of 220 KB and finds who holds how much of it, among 64 workers.
func BenchmarkMatch220KB(b *testing.B) {
	v, _ := benchFleet(64)
	prompt := make([]byte, 220<<10)
	rng := testRNG()
	for i := range prompt {
		prompt[i] = byte(rng.Uint32())
	}
	dst := Blocks(make([]uint64, 0, MaxBlocks), 1, prompt)
	for i := range v.Workers {
		v.Index.Insert(v.Workers[i].ID, dst[:rng.IntN(len(dst)+1)])
	}
	b.ReportAllocs()
	for b.Loop() {
		dst = Blocks(dst[:0], 1, prompt)
		v.Index.match(dst)
	}
}
