package capacity

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

// driftAmounts changes a statement's amounts a little or much.
func driftAmounts(t *rapid.T, s Summary) Summary {
	out := s
	out = cloneSummary(s)
	for _, m := range out.Models {
		for _, n := range m.amountFields() {
			if rapid.Bool().Draw(t, "moves") {
				*n = clampToRange(*n + *n/100*rapid.Int64Range(-3, 3).Draw(t, "percent"))
			}
		}
		m.Ready, m.KVFree, m.SlotsFree = min(m.Ready, m.Total), min(m.KVFree, m.KVTotal), min(m.SlotsFree, m.SlotsTotal)
	}
	out.Demand = append([]CellDemand(nil), s.Demand...)
	for i := range out.Demand {
		out.Demand[i].TokensPerSec += out.Demand[i].TokensPerSec / 150 * rapid.Int64Range(0, 2).Draw(t, "demand")
	}
	return out
}

// TestSuppressedChangesStayWithinOnePercent: each reported value is within 1 % of the true one, also after
// many summaries in a row. The set of items, zeros, and counts of workers and room are reported exactly. The arguments are unchanged.
func TestSuppressedChangesStayWithinOnePercent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := genSummary(t)
		said := truth
		for range rapid.IntRange(1, 8).Draw(t, "statements") {
			truth = driftAmounts(t, truth)
			before := cloneSummary(truth)
			said = SuppressSmallChanges(&said, &truth)
			if !truth.Equal(before) {
				t.Fatal("the truth was changed")
			}
			if len(said.Models) != len(truth.Models) || len(said.Demand) != len(truth.Demand) {
				t.Fatalf("said %+v of %+v", said, truth)
			}
			for i := range truth.Models {
				a, b := said.Models[i], truth.Models[i]
				if a.Name != b.Name || a.Ready != b.Ready || a.Total != b.Total || a.KVTotal != b.KVTotal || a.CostMicros != b.CostMicros {
					t.Fatalf("said %+v of %+v", a, b)
				}
				x, y := a.amountFields(), b.amountFields()
				for k := range x {
					if !isNearAmount(*x[k], *y[k]) {
						t.Fatalf("amount %d: said %d of %d", k, *x[k], *y[k])
					}
				}
				if err := a.checkModel(); err != nil {
					t.Fatal(err)
				}
			}
			for i := range truth.Demand {
				if said.Demand[i] != truth.Demand[i] {
					t.Fatalf("said %+v of %+v", said.Demand[i], truth.Demand[i])
				}
			}
			if again := SuppressSmallChanges(&said, &said); !again.Equal(said) {
				t.Fatal("what was said once is not steady")
			}
		}
	})
}

func TestIsNearAmount(t *testing.T) {
	for _, c := range []struct {
		a, b int64
		want bool
	}{
		{0, 0, true},
		{0, 1, false},
		{1, 0, false},
		{99, 100, true},
		{98, 100, false},
		{1, 2, false},
		{1_000_000, 1_010_000, true},
		{MaxAmount, MaxAmount - 1, true},
	} {
		if got := isNearAmount(c.a, c.b); got != c.want {
			t.Errorf("%d and %d: %v", c.a, c.b, got)
		}
	}
}

// cloneSummary shares no list of models or demand with s.
func cloneSummary(s Summary) Summary {
	s.Models, s.Demand = append([]*ModelCapacity(nil), s.Models...), append([]CellDemand(nil), s.Demand...)
	for i, m := range s.Models {
		c := *m
		s.Models[i] = &c
	}
	return s
}

// TestWaitDoesNotOverflow: the most overloaded model has the longest wait, never a negative one.
func TestWaitDoesNotOverflow(t *testing.T) {
	for _, c := range []struct {
		ahead, rate int64
		want        time.Duration
	}{
		{0, 1, 0},
		{1000, 500, 2 * time.Second},
		{86400, 1, maxPredictedWait},
		{86401, 1, maxPredictedWait},
		{1e10, 1, maxPredictedWait},
		{MaxAmount, 1, maxPredictedWait},
	} {
		m := ModelCapacity{Ready: 1, Hardware: []HardwareRates{{Name: "g", Ready: 1, PrefillRate: c.rate}}}
		m.WorkAhead[spec.Standard] = c.ahead
		if got, ok := m.PredictWait(spec.Standard); !ok || got != c.want {
			t.Errorf("%d tokens ahead at %d tokens/s: %v, %v; want %v", c.ahead, c.rate, got, ok, c.want)
		}
	}
}
