package capacity

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

func TestLandmarksIdentifyPrefixes(t *testing.T) {
	a := bytes.Repeat([]byte("abcdefgh"), 3<<10) // 24 KiB
	b := slices.Clone(a)
	b[5<<10] ^= 1
	of := func(secret uint64, owner, model string, prompt []byte) []uint64 {
		return AppendLandmarks(nil, secret, owner, model, prompt)
	}
	x, y := of(1, "t", "m", a), of(1, "t", "m", b)
	if len(x) != 9 || len(y) != 9 || !slices.Equal(x[:4], y[:4]) || x[4] == y[4] || x[8] == y[8] {
		t.Errorf("prompts that differ at 5 KiB have %x and %x", x, y)
	}
	for name, z := range map[string][]uint64{"secret": of(2, "t", "m", a), "owner": of(1, "u", "m", a), "model": of(1, "t", "n", a)} {
		for i := range z {
			if slices.Contains(x, z[i]) {
				t.Errorf("another %s has the same hash", name)
			}
		}
	}
	if len(of(1, "t", "m", a[:1023])) != 0 || len(of(1, "t", "m", bytes.Repeat(a, 30))) != MaxLandmarks {
		t.Error("short or long prompts have the wrong number of landmarks")
	}
}

// What it costs a gateway to name a prompt's beginnings.
func BenchmarkLandmarks(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 220 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			prompt := bytes.Repeat([]byte("word"), size/4)
			var dst [MaxLandmarks]uint64
			b.ReportAllocs()
			for b.Loop() {
				AppendLandmarks(dst[:0], 1, "tenant", "model", prompt)
			}
		})
	}
}
