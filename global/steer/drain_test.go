package steer_test

import (
	"testing"

	"github.com/spillway-lb/spillway/global/steer"
)

// TestGradualDrainMovesNetworksOneWay: as a drain progresses, a region's networks leave in proportion, none returns,
// and those of other regions stay.
func TestGradualDrainMovesNetworksOneWay(t *testing.T) {
	const networks = 8000
	table := weightedTable(map[string]float64{"r0": 1, "r1": 1})
	usual := 0
	var left [networks]bool
	for _, part := range []uint8{0, 255, 192, 128, 64, 1} {
		stays := 0
		for i := range networks {
			q := steer.PickQuery{Cell: -1, Key: prefixKey(i)}
			before := table.PickRegion(&q)
			q.DrainRemaining = []uint8{part, 0}
			now := table.PickRegion(&q)
			switch {
			case before.Region == 1 && now.Region != 1:
				t.Fatal("a network of the other region moves")
			case before.Region == 0 && now.Region == 0 && left[i]:
				t.Fatalf("a network comes back with %d/256", part)
			case before.Region == 0 && now.Region == 0:
				stays++
			}
			left[i] = now.Region == 1
		}
		if part == 0 {
			usual = stays
			continue
		}
		if got, want := float64(stays)/float64(usual), float64(part)/256; !isClose(got, want, 0.03) {
			t.Errorf("%.3f of the networks stay, want %.3f", got, want)
		}
	}
	var other steer.RegionSet
	other.Add(1)
	q := steer.PickQuery{Cell: -1, DrainRemaining: []uint8{1, 0}, Unavailable: other}
	if c := table.PickRegion(&q); c.Region != 0 {
		t.Errorf("with no other region the answer is %d", c.Region)
	}
}
