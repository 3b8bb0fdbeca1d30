package capacity

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRegionWithSeveralGatewaysCountsOnce: what the zones can do, what runs there and what waits is that of one
// gateway's statement; what clients ask for, from where and with what outcome is all of theirs.
func TestRegionWithSeveralGatewaysCountsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := FitToLimits(genSummary(t))
		n := rapid.IntRange(1, 3).Draw(t, "gateways")
		b := NewSummaryTable(FreshnessThresholds{})
		var asked Summary
		var all []*Summary
		for i := range n {
			own := FitToLimits(genSummary(t))
			s := &Summary{
				Path: Path{Region: "us", Instance: fmt.Sprintf("g%d", i)}, Boot: 1, Seq: 1, Endpoint: "e", Models: truth.Models,
				Demand: own.Demand, RTTs: own.RTTs, Networks: own.Networks, Outcomes: own.Outcomes,
			}
			all = append(all, s)
			asked.Demand = mergeSorted(asked.Demand, s.Demand, MaxDemand, compareDemand, mergeDemand)
			asked.Networks = mergeSorted(asked.Networks, s.Networks, MaxNetworks, compareNetwork, mergeNetwork)
			asked.Outcomes = mergeSorted(asked.Outcomes, s.Outcomes, MaxOutcomes, compareOutcome, mergeOutcome)
		}
		for _, i := range rapid.Permutation(all).Draw(t, "order") {
			b.PutSummary(i, t0)
		}
		got := b.BuildView(atMillis(100)).GroupByRegion()
		if len(got) != 1 || got[0].Children != n {
			t.Fatalf("%d regions of %d children", len(got), got[0].Children)
		}
		sum := got[0].Summary
		if !slices.EqualFunc(sum.Models, truth.Models, ModelCapacity.Equal) {
			t.Fatalf("%d gateways make %+v of %+v", n, sum.Models, truth.Models)
		}
		if !slices.Equal(sum.Demand, asked.Demand) || !slices.Equal(sum.Networks, asked.Networks) || len(sum.Outcomes) != len(asked.Outcomes) {
			t.Fatalf("clients ask for %+v, gateways say %+v", sum.Demand, asked.Demand)
		}
	})
}
