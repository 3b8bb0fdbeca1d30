package demand

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
)

func clientAddrOf(network int) netip.Addr {
	return netip.AddrFrom4([4]byte{11, byte(network >> 8), byte(network), byte(network * 7)})
}

// TestHeavyHittersAreFoundAmongManyNetworks: one network of 20,000 makes a fifth of the demand. The others
// together would fill the table forty times.
func TestHeavyHittersAreFoundAmongManyNetworks(t *testing.T) {
	h, now := newHeavyHitterTable(), time.Unix(1_000_000, 0)
	for i := range 400_000 {
		now = now.Add(time.Millisecond)
		client := clientAddrOf(1 + i*7919%20_000)
		if i%5 == 0 {
			client = clientAddrOf(0)
		}
		h.addRequest("s", "c", client, 10, now)
	}
	got := h.reportHeavyHitters([]capacity.CellDemand{{Service: "s", Cell: "c", TokensPerSec: 10_000}}, now)
	if len(got) != 1 || got[0].Number != capacity.NetworkNumber(clientAddrOf(0)) || math.Abs(float64(got[0].TokensPerSec)-2000) > 60 {
		t.Fatalf("heavy are %+v, want the one network with about 2000 tokens/s", got)
	}
	if len(h.slots) != maxHeavyHitters || len(h.index) != maxHeavyHitters {
		t.Errorf("%d slots, %d keys", len(h.slots), len(h.index))
	}
	if got := h.reportHeavyHitters(nil, now.Add(10*time.Minute)); len(got) != 0 {
		t.Errorf("ten minutes after the last request there are %+v", got)
	}
}

// TestHeavyHitterTableKeepsItsBounds: no network is overestimated, none is underestimated by more than the table's
// resolution, and heap and index agree, for any input.
func TestHeavyHitterTableKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, now := newHeavyHitterTable(), time.Unix(1_000_000, 0)
		networks := rapid.IntRange(1, 2000).Draw(t, "networks")
		skew := rapid.Float64Range(0, 2).Draw(t, "skew")
		truth, all := map[uint64]float64{}, 0.0
		step := time.Duration(rapid.SampledFrom([]int{0, 1, 100, 100_000}).Draw(t, "step")) * time.Millisecond
		seed := rapid.Uint64().Draw(t, "seed")
		for range rapid.IntRange(1, 6000).Draw(t, "requests") {
			now = now.Add(step)
			seed = seed*6364136223846793005 + 1442695040888963407
			u := (float64(seed>>11) + 0.5) / (1 << 53)
			client := clientAddrOf(int(float64(networks) * math.Pow(u, 1+skew)))
			fade := math.Exp(-step.Seconds() / heavyHitterWindow.Seconds())
			for k := range truth {
				truth[k] *= fade
			}
			all = all*fade + 10
			truth[capacity.NetworkNumber(client)] += 10
			h.addRequest("s", "c", client, 10, now)
		}
		if len(h.slots) > maxHeavyHitters || len(h.index) != len(h.slots) || len(h.heap) != len(h.slots) {
			t.Fatalf("%d slots, %d keys, %d in the heap", len(h.slots), len(h.index), len(h.heap))
		}
		scale := math.Exp(-h.decayExponent(now))
		for i := range h.slots {
			s := &h.slots[i]
			if h.index[s.key] != int32(i) || h.heap[s.heapIndex] != int32(i) || s.heapIndex > 0 && h.isLighter(s.heapIndex, (s.heapIndex-1)/2) {
				t.Fatalf("slot %d is lost", i)
			}
			real := truth[s.key.network]
			if least, most := (s.count-s.overcount)*scale, s.count*scale; least > real*(1+1e-9)+1e-6 || most < real*(1-1e-9)-1e-6 || most-real > all/maxHeavyHitters*(1+1e-9)+1e-6 {
				t.Fatalf("network %d asks for %v of %v and is told to ask for %v to %v", s.key.network, real, all, least, most)
			}
		}
		for n, real := range truth {
			if _, there := h.index[heavyHitterKey{"s", "c", n}]; !there && real > all/maxHeavyHitters*(1+1e-9)+1e-6 {
				t.Fatalf("network %d asks for %v of %v and is not counted", n, real, all)
			}
		}
	})
}

func TestHeavyHitterShareIsPerCell(t *testing.T) {
	h, now := newHeavyHitterTable(), time.Unix(1_000_000, 0)
	for i := range 30_000 {
		now = now.Add(10 * time.Millisecond)
		h.addRequest("s", "small", clientAddrOf(1), 1, now)
		h.addRequest("s", "large", clientAddrOf(2), 1, now)
		h.addRequest("s", "large", clientAddrOf(3+i%400), 200, now)
		h.addRequest("", "large", clientAddrOf(1), 1e9, now)
		h.addRequest("s", "", clientAddrOf(1), 1e9, now)
		h.addRequest("s", "large", netip.Addr{}, 1e9, now)
	}
	got := h.reportHeavyHitters([]capacity.CellDemand{
		{Service: "s", Cell: "large", TokensPerSec: 20_100}, {Service: "s", Cell: "small", Model: "a", TokensPerSec: 60}, {Service: "s", Cell: "small", Model: "b", TokensPerSec: 40},
	}, now)
	if len(got) != 1 || got[0].Cell != "small" {
		t.Errorf("heavy are %+v, want the one of the small cell", got)
	}
	if again := h.reportHeavyHitters(nil, now.Add(time.Second)); len(again) != 1 {
		t.Errorf("a second later there are %+v", again)
	}
}

func TestHeavyHitterTableAllocatesNothing(t *testing.T) {
	h, now, i := newHeavyHitterTable(), time.Unix(1_000_000, 0), 0
	for ; i < 4*maxHeavyHitters; i++ {
		h.addRequest("s", "c", clientAddrOf(i), 10, now)
	}
	if n := testing.AllocsPerRun(1000, func() {
		i++
		h.addRequest("s", "c", clientAddrOf(i%3000), 10, now)
	}); n > 0.1 {
		t.Errorf("counting a request allocates %v times", n)
	}
}

func BenchmarkHeavyHitterTableAdd(b *testing.B) {
	h, now := newHeavyHitterTable(), time.Unix(1_000_000, 0)
	b.ReportAllocs()
	for i := range b.N {
		h.addRequest("s", "c", clientAddrOf(i*7919%20_000), 10, now)
	}
}
