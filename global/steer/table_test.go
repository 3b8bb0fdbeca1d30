package steer_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/steer"
)

// TestPicksDoNotDependOnTheRegionOrderOfAPlan compiles a plan with the spec's region order, whose lists a Table
// shares, and the same plan in reverse order, whose lists it copies: they pick alike.
func TestPicksDoNotDependOnTheRegionOrderOfAPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, cells := rapid.IntRange(1, 6).Draw(t, "regions"), rapid.IntRange(1, 20).Draw(t, "cells")
		s := oneService(n)
		names, rtt := make([]string, cells), make([]float32, cells*n)
		for c := range names {
			names[c] = cellName(c)
		}
		for i := range rtt {
			rtt[i] = float32(rapid.IntRange(1, 300).Draw(t, "rtt")) / 1000
		}
		if gap := rapid.IntRange(0, cells).Draw(t, "gap"); gap < cells { // a cell without networks
			names[gap], rtt[gap*n] = "", float32(math.NaN())
		}
		g := steer.NewGeography(n, names, rtt)
		plan := drawPlan(t, n, cells)
		body, err := steer.EncodePlan(plan)
		if err != nil {
			t.Fatal(err)
		}
		if plan, err = steer.DecodePlan(body); err != nil {
			t.Fatal(err)
		}
		same, turned := steer.CompileTable(s, g, plan), steer.CompileTable(s, g, reverseRegions(plan))
		for cell := int32(-1); cell <= int32(cells); cell++ {
			for i := range 20 {
				q := steer.PickQuery{Cell: cell, Key: prefixKey(i)}
				if a, b := same.PickRegion(&q), turned.PickRegion(&q); a != b {
					t.Fatalf("cell %d: %+v, and %+v with regions turned round", cell, a, b)
				} else if want, has := singleRegion(plan, cell, names); has && (a.Reason != steer.ReasonPlanned || want >= 0 && a.Region != want) {
					t.Fatalf("cell %d goes to %+v, and its row says %d", cell, a, want)
				}
			}
		}
		if again, _ := steer.EncodePlan(plan); string(again) != string(body) {
			t.Fatal("compiling or picking changed the plan")
		}
	})
}

// TestRecompiledTablePicksTheSame recompiles a table through plans with equal and different cells and geographies
// with equal and different names: each picks like a table that was compiled alone.
func TestRecompiledTablePicksTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, cells := rapid.IntRange(1, 4).Draw(t, "regions"), rapid.IntRange(1, 12).Draw(t, "cells")
		s := oneService(n)
		var prev *steer.Table
		var g *steer.Geography
		var plan *steer.Plan
		for range rapid.IntRange(2, 6).Draw(t, "plans") {
			switch {
			case g == nil || rapid.IntRange(0, 3).Draw(t, "names") == 0:
				names, rtt := make([]string, cells), make([]float32, cells*n)
				by := rapid.IntRange(0, cells-1).Draw(t, "shift")
				for c := range names {
					names[c] = cellName((c + by) % cells)
				}
				g = steer.NewGeography(n, names, rtt)
			case rapid.Bool().Draw(t, "measured"):
				g = g.WithRows(map[int32][]float32{0: make([]float32, n)})
			}
			next := drawPlan(t, n, cells)
			if plan != nil && rapid.Bool().Draw(t, "same cells") {
				next.Services[0].Rows = slices.Clone(plan.Services[0].Rows)
				for i := range next.Services[0].Rows {
					next.Services[0].Rows[i].Shares = next.Services[0].Spread
				}
			}
			plan = next
			used := plan
			if rapid.IntRange(0, 4).Draw(t, "turned") == 0 {
				used = reverseRegions(plan)
			}
			if rapid.IntRange(0, 6).Draw(t, "gone") == 0 { // the spec has other regions than the plan
				clone := *used
				clone.Regions = slices.Clone(used.Regions)
				clone.Regions[0] = "elsewhere"
				used = &clone
			}
			own := steer.CompileTable(s, g, used)
			prev = steer.RecompileTable(prev, s, g, used)
			for cell := int32(-1); cell <= int32(cells); cell++ {
				for i := range 8 {
					q := steer.PickQuery{Cell: cell, Key: prefixKey(i)}
					if a, b := own.PickRegion(&q), prev.PickRegion(&q); a != b {
						t.Fatalf("cell %d: %+v by itself, %+v made from another", cell, a, b)
					}
				}
			}
		}
	})
}

// drawPlan draws rows for some of the cells, and for one that does not exist.
func drawPlan(t *rapid.T, regions, cells int) *steer.Plan {
	shares := func() (out []steer.RegionShare) {
		left := steer.WeightSum
		for r := range regions - 1 {
			if w := rapid.IntRange(0, min(left-1, 128)).Draw(t, "weight"); w > 0 {
				out, left = append(out, steer.RegionShare{Region: uint16(r), Weight: uint16(w)}), left-w
			}
		}
		return append(out, steer.RegionShare{Region: uint16(regions - 1), Weight: uint16(left)})
	}
	one := steer.ServicePlan{Name: testService, Wait: make([]float64, regions), Price: make([]float64, regions), Spread: shares()}
	plan := &steer.Plan{SpecVersion: 1}
	for r := range regions {
		plan.Regions = append(plan.Regions, oneService(regions).Regions[r].Name)
		one.Price[r] = float64(rapid.IntRange(0, 50).Draw(t, "price")) / 1000
	}
	for c := range cells + 1 {
		if rapid.Bool().Draw(t, "row") {
			one.Rows = append(one.Rows, steer.CellRow{Cell: cellName(c), Shares: shares()})
		}
	}
	plan.Services = []steer.ServicePlan{one}
	return plan
}

// reverseRegions reverses a plan's region order.
func reverseRegions(p *steer.Plan) *steer.Plan {
	n := len(p.Regions)
	list := func(in []steer.RegionShare) []steer.RegionShare {
		out := slices.Clone(in)
		slices.Reverse(out)
		for i := range out {
			out[i].Region = uint16(n-1) - out[i].Region
		}
		return out
	}
	out, one := *p, p.Services[0]
	out.Regions = slices.Clone(p.Regions)
	one.Wait, one.Price, one.Rows = slices.Clone(one.Wait), slices.Clone(one.Price), slices.Clone(one.Rows)
	slices.Reverse(out.Regions)
	slices.Reverse(one.Wait)
	slices.Reverse(one.Price)
	one.Spread = list(one.Spread)
	for i := range one.Rows {
		one.Rows[i].Shares = list(one.Rows[i].Shares)
	}
	out.Services = []steer.ServicePlan{one}
	return &out
}

// singleRegion is the only region of a cell's row, -1 if it has several; false without a row.
func singleRegion(p *steer.Plan, cell int32, names []string) (region int, has bool) {
	if cell < 0 || int(cell) >= len(names) || names[cell] == "" {
		return -1, false
	}
	rows := p.Services[0].Rows
	i, ok := slices.BinarySearchFunc(rows, names[cell], func(r steer.CellRow, name string) int { return strings.Compare(r.Cell, name) })
	if !ok {
		return -1, false
	}
	if len(rows[i].Shares) == 1 {
		return int(rows[i].Shares[0].Region), true
	}
	return -1, true
}

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
