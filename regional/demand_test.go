package regional

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/regional/zone"
)

func TestDemandIsARate(t *testing.T) {
	d, now := newDemand(), time.Unix(1_000_000, 0)
	f := flow{service: "s", model: "m", cell: "c"}
	for range 600 { // a minute of ten requests of 50 tokens a second
		now = now.Add(100 * time.Millisecond)
		d.offer(f, 50, now)
	}
	got := d.rates(now)
	if len(got) != 1 || math.Abs(float64(got[0].TokensPerSec)-500) > 15 || math.Abs(float64(got[0].RequestsPerSecMilli)-10_000) > 300 {
		t.Fatalf("demand is %+v, want about 500 tokens/s and 10 requests/s", got)
	}
	if got := d.rates(now.Add(3 * time.Minute)); len(got) != 0 || len(d.flows) != 0 {
		t.Fatalf("demand of three minutes ago is still felt: %+v", got)
	}
}

func TestDemandIsBoundedAndKeepsTheLargest(t *testing.T) {
	d, now := newDemand(), time.Unix(1_000_000, 0)
	big := flow{service: "s", model: "m", cell: "big"}
	d.offer(big, 1e9, now)
	for i := range 2 * maxDemand {
		d.offer(flow{service: "s", model: "m", cell: fmt.Sprint(i)}, float64(i+1), now)
	}
	if len(d.flows) != maxDemand || d.flows[big] == nil {
		t.Fatalf("%d flows are held, want %d with the largest among them", len(d.flows), maxDemand)
	}
}

func TestExpectedOutputIsLearned(t *testing.T) {
	d := newDemand()
	if got := d.expected("m", 4096); got != 256 {
		t.Errorf("unlearned output is %d", got)
	}
	for range 200 {
		d.learn("m", 40)
	}
	if got := d.expected("m", 4096); got != 40 {
		t.Errorf("learned output is %d, want 40", got)
	}
	if got := d.expected("m", 10); got != 10 {
		t.Errorf("output with a limit of 10 is %d", got)
	}
}

func TestOutputCostFollowsTheWorkers(t *testing.T) {
	view := func(prefill, decode int64) *zone.View {
		return &zone.View{Locals: []zone.Local{{Summary: &capacity.Summary{Models: []capacity.Model{{
			Name:     "m",
			Hardware: []capacity.Hardware{{Name: "h100", PrefillRate: prefill, DecodeRate: decode}},
		}}}}}}
	}
	for _, tc := range []struct {
		prefill, decode int64
		want            float64
	}{{40_000, 4000, 10}, {0, 0, decodeCost}, {100, 1000, minDecodeCost}, {1_000_000, 1, maxDecodeCost}} {
		if got := outputCost(view(tc.prefill, tc.decode), "m"); got != tc.want {
			t.Errorf("at %d and %d tokens/s an output token costs %v, want %v", tc.prefill, tc.decode, got, tc.want)
		}
	}
}
