package steer_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/spec"
)

func prefixKey(i int) uint64 {
	return steer.NetworkKey(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 7}))
}

func weightedTable(w map[string]float64) *steer.Table {
	s := oneService(len(w))
	s.Services[0].Mode, s.Services[0].Weights = "weighted", w
	return steer.CompileTable(s, nil, nil)
}

func TestChangedWeightsMoveFewClients(t *testing.T) {
	const prefixes = 10000
	before := weightedTable(map[string]float64{"r0": 50, "r1": 30, "r2": 20})
	after := weightedTable(map[string]float64{"r0": 45, "r1": 35, "r2": 20})
	var got [3]int
	moved := 0
	for i := range prefixes {
		q := steer.PickQuery{Cell: -1, Key: prefixKey(i)}
		a, b := before.PickRegion(&q), after.PickRegion(&q)
		got[a.Region]++
		if !a.Split {
			t.Fatal("a split answer does not say so")
		}
		if a.Region != b.Region {
			moved++
			if a.Region == 1 || b.Region == 0 {
				t.Fatalf("a client moved from %d to %d, against the change of weights", a.Region, b.Region)
			}
		}
	}
	for r, want := range []float64{0.5, 0.3, 0.2} {
		if part := float64(got[r]) / prefixes; !isClose(part, want, 0.02) {
			t.Errorf("region %d got %.3f of the prefixes, want %.2f within 2 points", r, part, want)
		}
	}
	if part := float64(moved) / prefixes; part > 0.08 || part < 0.03 {
		t.Errorf("a shift of 5 points moved %.3f of the clients, want about 0.05", part)
	}
}

func TestOnlyClientsOfAnUnavailableRegionMove(t *testing.T) {
	table := weightedTable(map[string]float64{"r0": 1, "r1": 1, "r2": 1})
	var lost steer.RegionSet
	lost.Add(2)
	for i := range 2000 {
		q := steer.PickQuery{Cell: -1, Key: prefixKey(i)}
		a := table.PickRegion(&q)
		q.Unavailable = lost
		if b := table.PickRegion(&q); a.Region != b.Region && a.Region != 2 {
			t.Fatalf("prefix %d moved from %d to %d though its region is well", i, a.Region, b.Region)
		}
	}
}

func TestNetworkKeyIgnoresHostBits(t *testing.T) {
	same := [][2]string{{"192.0.2.1", "192.0.2.200"}, {"::ffff:192.0.2.1", "192.0.2.9"}, {"2001:db8:1::1", "2001:db8:1:ffff::2"}}
	for _, c := range same {
		if steer.NetworkKey(netip.MustParseAddr(c[0])) != steer.NetworkKey(netip.MustParseAddr(c[1])) {
			t.Errorf("%s and %s have different keys", c[0], c[1])
		}
	}
	if steer.NetworkKey(netip.MustParseAddr("192.0.2.1")) == steer.NetworkKey(netip.MustParseAddr("192.0.3.1")) {
		t.Error("two networks share a key")
	}
}

func TestExplainListsEveryRegion(t *testing.T) {
	in := newYorkInput()
	in.Spec.Regions[0].BiasMS = 30
	table := steer.CompileTable(in.Spec, inputGeography(in), steer.SolvePlan(in).Plan)
	var rec explain.Explanation
	q := steer.PickQuery{Cell: 1}
	q.Drained.Add(0)
	c := table.ExplainPick(in.Spec, &q, []float64{0.5, 0.25}, &rec)
	if c.Region != 1 || rec.Chosen != "r1" || rec.Reason != "nearest" || len(rec.Candidates) != 2 {
		t.Fatalf("record is %+v", rec)
	}
	first := rec.Candidates[0]
	want := []explain.CostTerm{{Name: "rtt", Seconds: float64(float32(0.010))}, {Name: "wait", Seconds: 0.5}, {Name: "bias", Seconds: 0.03}}
	if first.IneligibleReason != "drained" || len(first.Terms) < 3 {
		t.Fatalf("first candidate is %+v", first)
	}
	for i := range want {
		if first.Terms[i] != want[i] {
			t.Errorf("term %d is %+v, want %+v", i, first.Terms[i], want[i])
		}
	}
}

// largeTable is 16 regions, 1,000 cells and a row of four regions for each.
func largeTable() (*spec.Spec, *steer.Table) {
	s := oneService(16)
	plan := &steer.Plan{SpecVersion: 1, Services: []steer.ServicePlan{{Name: testService, Wait: make([]float64, 16), Price: make([]float64, 16)}}}
	var names []string
	var rtt []float32
	for r := range s.Regions {
		plan.Regions = append(plan.Regions, s.Regions[r].Name)
	}
	for c := range 1000 {
		names = append(names, fmt.Sprintf("cell-%04d", c))
		for r := range 16 {
			rtt = append(rtt, float32((c*7+r*13)%200)/1000)
		}
		row := steer.CellRow{Cell: names[c]}
		for k := range uint16(4) {
			row.Shares = append(row.Shares, steer.RegionShare{Region: k * 3, Weight: 2500})
		}
		plan.Services[0].Rows = append(plan.Services[0].Rows, row)
	}
	return s, steer.CompileTable(s, steer.NewGeography(16, names, rtt), plan)
}

func TestPickAllocatesNothing(t *testing.T) {
	_, table := largeTable()
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		i++
		table.PickRegion(&steer.PickQuery{Cell: int32(i%1002 - 1), Key: uint64(i)})
	}); n != 0 {
		t.Fatalf("Pick allocates %v times, want 0", n)
	}
}

func BenchmarkPick(b *testing.B) {
	_, table := largeTable()
	client := netip.MustParseAddr("192.0.2.77")
	for _, c := range []struct {
		name string
		cell func(i int) int32
	}{
		{"row", func(i int) int32 { return int32(i % 1000) }},
		{"unknown_place", func(int) int32 { return -1 }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var lost steer.RegionSet
			lost.Add(3)
			for i := range b.N {
				q := steer.PickQuery{Cell: c.cell(i), Key: steer.NetworkKey(client), Unavailable: lost}
				table.PickRegion(&q)
			}
		})
	}
}

func BenchmarkSolve(b *testing.B) {
	in := &steer.PlanInput{Spec: oneService(16), SpecVersion: 1}
	for r := range 16 {
		in.Regions = append(in.Regions, steer.RegionState{Models: []steer.ModelCapacity{{Name: testModel, Rate: float64(1000 * (r + 1))}}})
	}
	for c := range 500 {
		cell := steer.Cell{Name: fmt.Sprintf("cell-%04d", c)}
		for r := range 16 {
			cell.RTT = append(cell.RTT, float32((c*7+r*13)%200)/1000)
		}
		in.Cells = append(in.Cells, cell)
		in.Demand = append(in.Demand, steer.CellDemand{Service: testService, Model: testModel, Cell: cell.Name, Rate: 200})
	}
	b.ReportAllocs()
	for b.Loop() {
		steer.SolvePlan(in)
	}
}

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

// A service with weights sends each client network to one region. A small change of the weights moves few networks.
func ExampleTable_PickRegion() {
	tableOf := func(weights map[string]float64) *steer.Table {
		return steer.CompileTable(&spec.Spec{
			Services: []spec.Service{{Name: "chat.api.example.", Mode: "weighted", Weights: weights}},
			Models:   []spec.Model{{Name: "llama-8b"}},
			Regions:  []spec.Region{{Name: "fra"}, {Name: "iad"}},
		}, nil, nil)
	}
	before, after := tableOf(map[string]float64{"fra": 50, "iad": 50}), tableOf(map[string]float64{"fra": 45, "iad": 55})
	var counts [2]int
	moved := 0
	const networks = 10_000
	for i := range networks {
		network := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1})
		q := steer.PickQuery{Cell: -1, Key: steer.NetworkKey(network)}
		a, b := before.PickRegion(&q).Region, after.PickRegion(&q).Region
		counts[a]++
		if a != b {
			moved++
		}
	}
	fmt.Printf("fra %.1f, iad %.1f of the networks; the change moves %.2f\n",
		float64(counts[0])/networks, float64(counts[1])/networks, float64(moved)/networks)
	// Output: fra 0.5, iad 0.5 of the networks; the change moves 0.05
}
