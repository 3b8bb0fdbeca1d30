package pick

import (
	"testing"

	"pgregory.net/rapid"
)

// TestIndexAgainstAModel compares matches with a plain list of each worker's most recent blocks.
func TestIndexAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.IntRange(1, 12).Draw(t, "bound")
		x := NewIndex(1 << 30)
		held := map[int32][]uint64{} // most recent last
		workers := []int32{0, 1, 63, 64, 200}
		x.grow(200)
		for w := range x.most {
			x.most[w] = int32(bound)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w := rapid.SampledFrom(workers).Draw(t, "worker")
			if rapid.IntRange(0, 15).Draw(t, "op") == 0 {
				x.Forget(w)
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
			x.Insert(w, blocks)
			for i := min(n, bound) - 1; i >= 0; i-- {
				held[w] = append(without(held[w], blocks[i]), blocks[i])
				if len(held[w]) > bound {
					held[w] = held[w][1:]
				}
			}
			x.match(blocks)
			distinct := map[uint64]bool{}
			for _, o := range workers {
				want := 0
				for want < n && contains(held[o], blocks[want]) {
					want++
				}
				if got := x.matched(o); got != want {
					t.Fatalf("worker %d matches %d blocks, want %d", o, got, want)
				}
				for _, h := range held[o] {
					distinct[h] = true
				}
			}
			if x.Len() != len(distinct) {
				t.Fatalf("the index knows %d blocks, the workers hold %d", x.Len(), len(distinct))
			}
		}
	})
}

func without(s []uint64, h uint64) []uint64 {
	out := s[:0:0]
	for _, v := range s {
		if v != h {
			out = append(out, v)
		}
	}
	return out
}

func contains(s []uint64, h uint64) bool {
	for _, v := range s {
		if v == h {
			return true
		}
	}
	return false
}

func TestBlocksChainAndAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.Byte(), 0, 4000).Draw(t, "prompt")
		b := append(append([]byte{}, a...), rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "more")...)
		x, y := Blocks(nil, 7, a), Blocks(nil, 7, b)
		if len(x) > len(y) || blockEnd(len(x)) > int64(len(a)) {
			t.Fatalf("%d blocks of %d bytes, %d of %d", len(x), len(a), len(y), len(b))
		}
		for i := range x {
			if x[i] != y[i] {
				t.Fatalf("block %d of a prompt differs from the same block of its continuation", i)
			}
		}
		if len(a) >= 512 {
			a[0]++
			if z := Blocks(nil, 7, a); z[len(z)-1] == x[len(x)-1] {
				t.Fatal("a changed first byte did not change the last block's hash")
			}
		}
	})
	if n := len(Blocks(nil, 1, make([]byte, 4<<20))); n != MaxBlocks {
		t.Fatalf("4 MiB have %d blocks, want the bound %d", n, MaxBlocks)
	}
}
