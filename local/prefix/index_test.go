package prefix

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/local/blockhash"
)

// TestIndexMatchesReferenceModel compares matches with a plain list of each worker's most recent blocks.
func TestIndexMatchesReferenceModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.IntRange(1, 12).Draw(t, "bound")
		x := NewIndex(1 << 30)
		held := map[int32][]uint64{} // most recent last
		workers := []int32{0, 1, 63, 64, 200}
		x.growWorkers(200)
		for w := range x.cacheBlocks {
			x.cacheBlocks[w] = int32(bound)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w := rapid.SampledFrom(workers).Draw(t, "worker")
			if rapid.IntRange(0, 15).Draw(t, "op") == 0 {
				x.ForgetWorker(w)
				delete(held, w)
				continue
			}
			// Chains share beginnings: block i of chain c is the same for c/2 and c up to i = c%3.
			c := rapid.IntRange(0, 5).Draw(t, "chain")
			n := rapid.IntRange(1, 8).Draw(t, "len")
			blocks := make([]uint64, n)
			for i := range blocks {
				blocks[i] = uint64(i + 1)
				if i > c%3 {
					blocks[i] += uint64(100 * (c + 1))
				}
			}
			x.InsertPrompt(w, blocks)
			for i := min(n, bound) - 1; i >= 0; i-- {
				held[w] = append(withoutHash(held[w], blocks[i]), blocks[i])
				if len(held[w]) > bound {
					held[w] = held[w][1:]
				}
			}
			x.MatchBlocks(blocks)
			distinct := map[uint64]bool{}
			for _, o := range workers {
				want := 0
				for want < n && containsHash(held[o], blocks[want]) {
					want++
				}
				if got := x.MatchedBlocks(o); got != want {
					t.Fatalf("worker %d matches %d blocks, want %d", o, got, want)
				}
				for _, h := range held[o] {
					distinct[h] = true
				}
			}
			if x.Len() != len(distinct) {
				t.Fatalf("the index has %d blocks, the workers hold %d", x.Len(), len(distinct))
			}
		}
	})
}

func withoutHash(s []uint64, h uint64) []uint64 {
	out := s[:0:0]
	for _, v := range s {
		if v != h {
			out = append(out, v)
		}
	}
	return out
}

func containsHash(s []uint64, h uint64) bool {
	for _, v := range s {
		if v == h {
			return true
		}
	}
	return false
}

// TestAMillionPrefixesStayInTheBound checks that the index stays within its memory under a million distinct
// prefixes while workers join: few with long lists, and many with shorter ones.
func TestAMillionPrefixesStayInTheBound(t *testing.T) {
	for _, c := range []struct{ bound, most int }{{24 << 20, 100}, {2 << 20, 2}} {
		t.Run(fmt.Sprintf("%dMiB", c.bound>>20), func(t *testing.T) { testPrefixesStayInTheBound(t, int64(c.bound), c.most) })
	}
}

func testPrefixesStayInTheBound(t *testing.T, bound int64, most int) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	x := NewIndex(int(bound))
	blocks := make([]uint64, 4)
	check := func(when string) {
		t.Helper()
		if got := heap() - before; got > bound {
			t.Fatalf("%s the index takes %d bytes, over its bound of %d", when, got, bound)
		}
	}
	for i := range 1_000_000 {
		workers := 1 + i*most/1_000_000 // from 1 to most
		for b := range blocks {
			blocks[b] = blockhash.ChainHash(uint64(i), uint64(b))
		}
		w := int32(i % workers)
		if i%10_000 == 0 {
			x.SetCacheSize(w, 4<<20, 4)
		}
		x.InsertPrompt(w, blocks)
		if i%125_000 == 99_999 {
			check(fmt.Sprintf("after %d prefixes and %d workers", i+1, workers))
		}
	}
	check("after the flood")
	if !x.MatchBlocks(blocks) || x.MatchedBlocks(int32(999_999%most)) != len(blocks) {
		t.Fatal("the newest prefix is not in the index")
	}
	if x.Len() < 1000 {
		t.Fatalf("only %d blocks are kept", x.Len())
	}
	runtime.KeepAlive(x)
}

func TestIndexSizeFollowsEngineCache(t *testing.T) {
	x := NewIndex(1 << 30)
	x.SetCacheSize(0, 100_000, 4) // 400,000 bytes: 1,562 blocks of 256
	x.SetCacheSize(1, 0, 4)
	if x.listLimit(0) != 1562 || x.listLimit(1) != defaultCacheBlocks {
		t.Fatalf("lists may be %d and %d blocks long", x.listLimit(0), x.listLimit(1))
	}
	var buf [8]byte
	for i := range uint64(2000) {
		binary.LittleEndian.PutUint64(buf[:], i)
		x.InsertPrompt(0, []uint64{i})
	}
	x.SetCacheSize(0, 10_000, 4)
	if got := x.lists[0].Len(); got != 156 {
		t.Fatalf("after its cache shrank a worker's list has %d blocks, want 156", got)
	}
	if !x.MatchBlocks([]uint64{1999}) || x.MatchedBlocks(0) != 1 {
		t.Fatal("the newest block went with the oldest")
	}
}

// TestIndexHoldsNoMoreThanWorkerCache: late blocks of a prompt are sixteen times as long as its first. When all blocks
// counted alike, several long prompts were estimated as cached where one fits.
func TestIndexHoldsNoMoreThanWorkerCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := NewIndex(1 << 30)
		kv := rapid.Int64Range(1, 500_000).Draw(t, "kv")
		x.SetCacheSize(0, kv, 4)
		most := max(4*kv, minCacheBlocks*blockhash.FineSize)
		for i := range rapid.IntRange(1, 20).Draw(t, "prompts") {
			blocks := make([]uint64, rapid.IntRange(1, blockhash.MaxBlocks).Draw(t, "blocks"))
			for b := range blocks {
				blocks[b] = blockhash.ChainHash(uint64(i), uint64(b))
			}
			x.InsertPrompt(0, blocks)
			held := int64(0)
			x.lists[0].ForEachHash(func(_ uint64, size int32) { held += int64(size) * blockhash.FineSize })
			if held > most || held != int64(x.lists[0].SizeOfAll())*blockhash.FineSize {
				t.Fatalf("the list has %d bytes, counted as %d; the cache has %d", held, x.lists[0].SizeOfAll()*blockhash.FineSize, most)
			}
			if got, want := x.MatchedBytes(0, blocks), blockhash.BytesCovered(len(blocks)); got != want && want <= most {
				t.Fatalf("%d bytes of a prompt fit, %d are in the index", want, got)
			}
		}
	})
}

var testStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
