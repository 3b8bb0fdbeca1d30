package routing_test

import (
	"testing"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/regional/routing"
)

func TestRoutingView_OutputTokenCostFollowsTheWorkers(t *testing.T) {
	view := func(prefill, decode int64) *routing.RoutingView {
		return &routing.RoutingView{Locals: []routing.LocalInstance{{Summary: &capacity.Summary{Models: []capacity.ModelCapacity{{
			Name:     "m",
			Hardware: []capacity.HardwareRates{{Name: "h100", PrefillRate: prefill, DecodeRate: decode}},
		}}}}}}
	}
	for _, tc := range []struct {
		prefill, decode int64
		want            float64
	}{{40_000, 4000, 10}, {0, 0, routing.DefaultDecodeCost}, {100, 1000, routing.MinDecodeCost}, {1_000_000, 1, routing.MaxDecodeCost}} {
		if got := view(tc.prefill, tc.decode).OutputTokenCost("m"); got != tc.want {
			t.Errorf("at %d and %d tokens/s an output token costs %v, want %v", tc.prefill, tc.decode, got, tc.want)
		}
	}
}
