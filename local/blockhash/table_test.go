package blockhash

import (
	"testing"

	"pgregory.net/rapid"
)

// TestHashTableMatchesGoMap compares the table with a Go map over random insertions and removals.
func TestHashTableMatchesGoMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, want := Table{}, map[uint64]int32{}
		keys := rapid.Uint64Range(0, rapid.Uint64Range(1, 2000).Draw(t, "keys"))
		for i := range rapid.IntRange(0, 3000).Draw(t, "steps") {
			key := keys.Draw(t, "key")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				x.DeleteKey(key)
				delete(want, key)
			case 1:
				before, there := want[key]
				if place, isNew := x.GetOrPut(key, int32(i)); isNew == there || there && place != before || !there && place != int32(i) {
					t.Fatalf("key %d is at %d, new %v, before %d, %v", key, place, isNew, before, there)
				}
				x.putEntry(key, int32(i))
				want[key] = int32(i)
			default:
				x.putEntry(key, int32(i))
				want[key] = int32(i)
			}
			if got, ok := x.Get(key); ok != (want[key] == int32(i) && len(want) > 0 && containsValue(want, key)) || ok && got != int32(i) {
				t.Fatalf("key %d is %d, %v", key, got, ok)
			}
		}
		if x.Len() != len(want) {
			t.Fatalf("%d keys, want %d", x.Len(), len(want))
		}
		for key, place := range want {
			if got, ok := x.Get(key); !ok || got != place {
				t.Fatalf("key %d is %d, %v, want %d", key, got, ok, place)
			}
		}
	})
}

func containsValue(m map[uint64]int32, key uint64) bool {
	_, ok := m[key]
	return ok
}

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
