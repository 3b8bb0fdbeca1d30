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
				x.put(key, int32(i))
				want[key] = int32(i)
			default:
				x.put(key, int32(i))
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
