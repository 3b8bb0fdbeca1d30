package pick

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// BenchmarkChoosePercentiles times every single choice of the default policy among 1,000 workers, for a prompt of 8,000
// tokens of which most workers hold a part: by the wall clock, and by the CPU time of its thread, which leaves out the
// moments in which somebody else had the core.
func BenchmarkChoosePercentiles(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	v, q := benchFleet(1000)
	rng := testRNG()
	const most = 1 << 18
	wall, cpu := make([]float64, 0, most), make([]float64, 0, most)
	b.ReportAllocs()
	for b.Loop() {
		if len(wall) == most {
			wall, cpu = wall[:0], cpu[:0]
		}
		worked, start := threadTime(b), time.Now()
		Choose(q, v, t0, rng, nil)
		wall = append(wall, float64(time.Since(start))/1000)
		cpu = append(cpu, float64(threadTime(b)-worked)/1000)
	}
	slices.Sort(wall)
	slices.Sort(cpu)
	b.ReportMetric(wall[len(wall)/2], "p50-us")
	b.ReportMetric(wall[len(wall)*99/100], "p99-us")
	b.ReportMetric(cpu[len(cpu)/2], "cpu-p50-us")
	b.ReportMetric(cpu[len(cpu)*99/100], "cpu-p99-us")
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

// BenchmarkIndexFlood reports what the index takes once a million distinct prefixes of four blocks have gone to 100
// workers, as a part of the memory that it may have.
func BenchmarkIndexFlood(b *testing.B) {
	const bound, workers, prefixes = 24 << 20, 100, 1_000_000
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	var took float64
	for b.Loop() {
		before := heap()
		x := NewIndex(bound)
		blocks := make([]uint64, 4)
		for i := range prefixes {
			for n := range blocks {
				blocks[n] = chain(uint64(i), uint64(n))
			}
			x.Insert(int32(i%workers), blocks)
		}
		took = heap() - before
		runtime.KeepAlive(x)
	}
	b.ReportMetric(100*took/bound, "%bound")
	b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/prefixes, "ns/prefix")
}
