package steer_test

import (
	"math"
	"slices"
	"testing"

	"github.com/spillway-lb/spillway/global/steer"
)

func TestWithRowsReplacesOnlyKnownRows(t *testing.T) {
	nan := float32(math.NaN())
	g := steer.NewGeography(2, []string{"a", "", "c"}, []float32{1, 2, nan, nan, 5, 6})
	got := g.WithRows(map[int32][]float32{0: {7, 8}, 1: {9, 9}, 2: {3}, 3: {1, 1}, -1: {1, 1}})
	for cell, want := range map[int32][]float32{0: {7, 8}, 1: nil, 2: {5, 6}, 3: nil} {
		if row := got.RTTRow(cell); !slices.Equal(row, want) {
			t.Errorf("cell %d is %v, want %v", cell, row, want)
		}
	}
	if row := g.RTTRow(0); row[0] != 1 {
		t.Errorf("the old one has changed to %v", row)
	}
}
