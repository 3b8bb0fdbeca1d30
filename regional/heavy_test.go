package regional

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
)

func clientOf(network int) netip.Addr {
	return netip.AddrFrom4([4]byte{11, byte(network >> 8), byte(network), byte(network * 7)})
}

// TestHeavyNetworksAreFoundInACrowd has one network of 20,000 ask for a fifth of everything. The others together would
// fill the table forty times.
func TestHeavyNetworksAreFoundInACrowd(t *testing.T) {
	h, now := newHeavies(), time.Unix(1_000_000, 0)
	for i := range 400_000 {
		now = now.Add(time.Millisecond)
		client := clientOf(1 + i*7919%20_000)
		if i%5 == 0 {
			client = clientOf(0)
		}
		h.offer("s", "c", client, 10, now)
	}
	got := h.report([]capacity.Demand{{Service: "s", Cell: "c", TokensPerSec: 10_000}}, now)
	if len(got) != 1 || got[0].Number != capacity.NetworkNumber(clientOf(0)) || math.Abs(float64(got[0].TokensPerSec)-2000) > 60 {
		t.Fatalf("heavy are %+v, want the one network with about 2000 tokens/s", got)
	}
	if len(h.slots) != maxHeavy || len(h.index) != maxHeavy {
		t.Errorf("%d slots, %d keys", len(h.slots), len(h.index))
	}
	if got := h.report(nil, now.Add(10*time.Minute)); len(got) != 0 {
		t.Errorf("ten minutes after the last request there are %+v", got)
	}
}

// TestHeaviesKeepTheirBounds holds that no network is told to be heavier than it is, that none is missed by more than the
// table's grain, and that heap and index agree, whatever is offered when.
func TestHeaviesKeepTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, now := newHeavies(), time.Unix(1_000_000, 0)
		networks := rapid.IntRange(1, 2000).Draw(t, "networks")
		skew := rapid.Float64Range(0, 2).Draw(t, "skew")
		truth, all := map[uint64]float64{}, 0.0
		step := time.Duration(rapid.SampledFrom([]int{0, 1, 100, 100_000}).Draw(t, "step")) * time.Millisecond
		seed := rapid.Uint64().Draw(t, "seed")
		for range rapid.IntRange(1, 6000).Draw(t, "requests") {
			now = now.Add(step)
			seed = seed*6364136223846793005 + 1442695040888963407
			u := (float64(seed>>11) + 0.5) / (1 << 53)
			client := clientOf(int(float64(networks) * math.Pow(u, 1+skew)))
			fade := math.Exp(-step.Seconds() / heavyWindow.Seconds())
			for k := range truth {
				truth[k] *= fade
			}
			all = all*fade + 10
			truth[capacity.NetworkNumber(client)] += 10
			h.offer("s", "c", client, 10, now)
		}
		if len(h.slots) > maxHeavy || len(h.index) != len(h.slots) || len(h.heap) != len(h.slots) {
			t.Fatalf("%d slots, %d keys, %d in the heap", len(h.slots), len(h.index), len(h.heap))
		}
		scale := math.Exp(-h.since(now))
		for i := range h.slots {
			s := &h.slots[i]
			if h.index[s.key] != int32(i) || h.heap[s.at] != int32(i) || s.at > 0 && h.less(s.at, (s.at-1)/2) {
				t.Fatalf("slot %d is lost", i)
			}
			real := truth[s.key.network]
			if least, most := (s.count-s.err)*scale, s.count*scale; least > real*(1+1e-9)+1e-6 || most < real*(1-1e-9)-1e-6 || most-real > all/maxHeavy*(1+1e-9)+1e-6 {
				t.Fatalf("network %d asks for %v of %v and is told to ask for %v to %v", s.key.network, real, all, least, most)
			}
		}
		for n, real := range truth {
			if _, there := h.index[heavyKey{"s", "c", n}]; !there && real > all/maxHeavy*(1+1e-9)+1e-6 {
				t.Fatalf("network %d asks for %v of %v and is not counted", n, real, all)
			}
		}
	})
}

func TestHeavyIsAMatterOfItsCell(t *testing.T) {
	h, now := newHeavies(), time.Unix(1_000_000, 0)
	for i := range 30_000 {
		now = now.Add(10 * time.Millisecond)
		h.offer("s", "small", clientOf(1), 1, now)
		h.offer("s", "large", clientOf(2), 1, now)
		h.offer("s", "large", clientOf(3+i%400), 200, now)
		h.offer("", "large", clientOf(1), 1e9, now)
		h.offer("s", "", clientOf(1), 1e9, now)
		h.offer("s", "large", netip.Addr{}, 1e9, now)
	}
	got := h.report([]capacity.Demand{
		{Service: "s", Cell: "large", TokensPerSec: 20_100}, {Service: "s", Cell: "small", Model: "a", TokensPerSec: 60}, {Service: "s", Cell: "small", Model: "b", TokensPerSec: 40},
	}, now)
	if len(got) != 1 || got[0].Cell != "small" {
		t.Errorf("heavy are %+v, want the one of the small cell", got)
	}
	if again := h.report(nil, now.Add(time.Second)); len(again) != 1 {
		t.Errorf("a second later there are %+v", again)
	}
}

func TestCountingHeaviesAllocatesNothing(t *testing.T) {
	h, now, i := newHeavies(), time.Unix(1_000_000, 0), 0
	for ; i < 4*maxHeavy; i++ {
		h.offer("s", "c", clientOf(i), 10, now)
	}
	if n := testing.AllocsPerRun(1000, func() {
		i++
		h.offer("s", "c", clientOf(i%3000), 10, now)
	}); n > 0.1 {
		t.Errorf("counting a request allocates %v times", n)
	}
}

func BenchmarkHeavyOffer(b *testing.B) {
	h, now := newHeavies(), time.Unix(1_000_000, 0)
	b.ReportAllocs()
	for i := range b.N {
		h.offer("s", "c", clientOf(i*7919%20_000), 10, now)
	}
}
