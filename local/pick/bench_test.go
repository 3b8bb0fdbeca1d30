package pick

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/prefix"
)

// BenchmarkChoosePercentiles measures every single choice of the default policy among 1,000 workers, for a prompt of
// 8,000 tokens of which most workers hold a part: in wall-clock time, and in CPU time of its thread, which excludes the
// time in which other threads had the core.
func BenchmarkChoosePercentiles(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	v, q := newBenchFleet(1000)
	rng := testRNG()
	const most = 1 << 18
	wall, cpu := make([]float64, 0, most), make([]float64, 0, most)
	b.ReportAllocs()
	for b.Loop() {
		if len(wall) == most {
			wall, cpu = wall[:0], cpu[:0]
		}
		worked, start := testkit.ThreadTime(), time.Now()
		ChooseWorker(q, v, testStart, rng, nil)
		wall = append(wall, float64(time.Since(start))/1000)
		cpu = append(cpu, float64(testkit.ThreadTime()-worked)/1000)
	}
	slices.Sort(wall)
	slices.Sort(cpu)
	b.ReportMetric(wall[len(wall)/2], "p50-us")
	b.ReportMetric(wall[len(wall)*99/100], "p99-us")
	b.ReportMetric(cpu[len(cpu)/2], "cpu-p50-us")
	b.ReportMetric(cpu[len(cpu)*99/100], "cpu-p99-us")
}

// BenchmarkMatch220KB hashes a prompt of 220 KB and finds how much of it each of 64 workers holds.
func BenchmarkMatch220KB(b *testing.B) {
	v, _ := newBenchFleet(64)
	prompt := make([]byte, 220<<10)
	rng := testRNG()
	for i := range prompt {
		prompt[i] = byte(rng.Uint32())
	}
	dst := blockhash.AppendBlockHashes(make([]uint64, 0, blockhash.MaxBlocks), 1, prompt)
	for i := range v.Workers {
		v.Index.InsertPrompt(v.Workers[i].ID, dst[:rng.IntN(len(dst)+1)])
	}
	b.ReportAllocs()
	for b.Loop() {
		dst = blockhash.AppendBlockHashes(dst[:0], 1, prompt)
		v.Index.MatchBlocks(dst)
	}
}

// BenchmarkIndexFlood reports the memory of the index after a million distinct prefixes of four blocks have been sent
// to 100 workers, as a part of its limit.
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
		x := prefix.NewIndex(bound)
		blocks := make([]uint64, 4)
		for i := range prefixes {
			for n := range blocks {
				blocks[n] = blockhash.ChainHash(uint64(i), uint64(n))
			}
			x.InsertPrompt(int32(i%workers), blocks)
		}
		took = heap() - before
		runtime.KeepAlive(x)
	}
	b.ReportMetric(100*took/bound, "%bound")
	b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/prefixes, "ns/prefix")
}
