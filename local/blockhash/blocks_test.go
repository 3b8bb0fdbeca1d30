package blockhash

import (
	"testing"

	"pgregory.net/rapid"
)

func TestBlocksChainAndAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.Byte(), 0, 4000).Draw(t, "prompt")
		b := append(append([]byte{}, a...), rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "more")...)
		x, y := AppendBlockHashes(nil, 7, a), AppendBlockHashes(nil, 7, b)
		if len(x) > len(y) || BytesCovered(len(x)) > int64(len(a)) {
			t.Fatalf("%d blocks of %d bytes, %d of %d", len(x), len(a), len(y), len(b))
		}
		for i := range x {
			if x[i] != y[i] {
				t.Fatalf("block %d of a prompt differs from the same block of its continuation", i)
			}
		}
		if len(a) >= 512 {
			a[0]++
			if z := AppendBlockHashes(nil, 7, a); z[len(z)-1] == x[len(x)-1] {
				t.Fatal("a changed first byte did not change the last block's hash")
			}
		}
	})
	if n := len(AppendBlockHashes(nil, 1, make([]byte, 4<<20))); n != MaxBlocks {
		t.Fatalf("4 MiB have %d blocks, want the bound %d", n, MaxBlocks)
	}
}

func BenchmarkAppendBlockHashes(b *testing.B) {
	prompt := make([]byte, 16<<10)
	dst := make([]uint64, 0, MaxBlocks)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendBlockHashes(dst[:0], 1, prompt)
	}
}
