package prefix

import (
	"testing"

	"pgregory.net/rapid"
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
