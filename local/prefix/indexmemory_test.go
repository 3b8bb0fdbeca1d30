package prefix

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/local/blockhash"
)

// TestPain08_AMillionPrefixesStayInTheBound checks that the index stays within its memory under a million distinct
// prefixes while workers join: few with long lists, and many with shorter ones.
func TestPain08_AMillionPrefixesStayInTheBound(t *testing.T) {
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
