package steer_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
	"pgregory.net/rapid"
)

const testModel = "m"

// drawWorld draws a spec of one latency service, regions on a line and cells next to them.
func drawWorld(t *rapid.T) *steer.PlanInput {
	regions := rapid.IntRange(1, 8).Draw(t, "regions")
	cells := rapid.IntRange(1, 20).Draw(t, "cells")
	in := &steer.PlanInput{Spec: oneService(regions), SpecVersion: 1}
	for r := range regions {
		in.Spec.Regions[r].MaxShare = rapid.Float64Range(0.3, 1).Draw(t, "max_share")
		in.Spec.Regions[r].BiasMS = rapid.Float64Range(-20, 20).Draw(t, "bias")
		in.Regions = append(in.Regions, steer.RegionState{
			Drained: rapid.IntRange(0, 3).Draw(t, "drained") == 0,
			Dead:    rapid.IntRange(0, 5).Draw(t, "lost") == 0,
			Models: []steer.ModelCapacity{{
				Name: testModel,
				Rate: rapid.Float64Range(0, 1e5).Draw(t, "rate"),
				Wait: rapid.Float64Range(0, 0.1).Draw(t, "wait"),
			}},
		})
	}
	for c := range cells {
		cell := steer.Cell{Name: cellName(c)}
		for range regions {
			cell.RTT = append(cell.RTT, float32(rapid.Float64Range(0.001, 0.3).Draw(t, "rtt")))
		}
		in.Cells = append(in.Cells, cell)
		in.Demand = append(in.Demand, steer.CellDemand{
			Service: testService, Model: testModel, Cell: cell.Name, Rate: rapid.Float64Range(0, 3e4).Draw(t, "demand"),
		})
	}
	return in
}

const testService = "chat.api.example."

func cellName(c int) string { return fmt.Sprintf("cell-%02d", c) }

func oneService(regions int) *spec.Spec {
	s := &spec.Spec{
		Services: []spec.Service{{Name: testService, Mode: "latency"}},
		Models:   []spec.Model{{Name: testModel}},
		Steering: spec.Steering{DeadBand: 0.05, MaxStep: 0.25},
	}
	for r := range regions {
		s.Regions = append(s.Regions, spec.Region{Name: fmt.Sprintf("r%d", r), MaxShare: 0.85})
	}
	return s
}

func inputGeography(in *steer.PlanInput) *steer.Geography {
	var names []string
	var rtt []float32
	for _, c := range in.Cells {
		names = append(names, c.Name)
		rtt = append(rtt, c.RTT...)
	}
	return steer.NewGeography(len(in.Spec.Regions), names, rtt)
}

// outageSets are the masks that a node would apply to the plan.
func outageSets(in *steer.PlanInput) (drained, lost steer.RegionSet) {
	for r, s := range in.Regions {
		if s.Drained {
			drained.Add(r)
		}
		if s.Dead {
			lost.Add(r)
		}
	}
	return drained, lost
}

// plannedLoads is the demand of each region when every cell is split as planned.
func plannedLoads(in *steer.PlanInput, p *steer.Plan) []float64 {
	out := make([]float64, len(in.Spec.Regions))
	drained, lost := outageSets(in)
	table := steer.CompileTable(in.Spec, inputGeography(in), p)
	rows := map[string][]steer.RegionShare{}
	for _, r := range p.Services[0].Rows {
		rows[r.Cell] = r.Shares
	}
	for c, d := range in.Demand {
		if shares, ok := rows[d.Cell]; ok {
			for _, s := range shares {
				out[s.Region] += d.Rate * float64(s.Weight) / steer.WeightSum
			}
			continue
		}
		out[table.PickRegion(&steer.PickQuery{Cell: int32(c), Drained: drained, Unavailable: lost}).Region] += d.Rate
	}
	return out
}

func isClose(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

// drawInput draws several services of every mode over several models, some restricted to a few regions, with regions
// drained, unavailable or without workers.
func drawInput(t *rapid.T) *steer.PlanInput {
	in := &steer.PlanInput{Spec: &spec.Spec{Steering: spec.Steering{DeadBand: 0.05, MaxStep: 0.25}}, SpecVersion: 1}
	models := rapid.IntRange(1, 3).Draw(t, "models")
	for m := range models {
		in.Spec.Models = append(in.Spec.Models, spec.Model{Name: fmt.Sprintf("m%d", m)})
	}
	regions := rapid.IntRange(1, 8).Draw(t, "regions")
	var names []string
	for r := range regions {
		names = append(names, fmt.Sprintf("r%d", r))
		in.Spec.Regions = append(in.Spec.Regions, spec.Region{
			Name: names[r], MaxShare: rapid.Float64Range(0.3, 1).Draw(t, "max_share"), BiasMS: rapid.Float64Range(-20, 20).Draw(t, "bias"),
		})
		region := steer.RegionState{
			Drained: rapid.IntRange(0, 3).Draw(t, "drained") == 0, Dead: rapid.IntRange(0, 5).Draw(t, "lost") == 0,
		}
		for m := range models {
			if rapid.IntRange(0, 4).Draw(t, "has") > 0 {
				region.Models = append(region.Models, steer.ModelCapacity{
					Name: in.Spec.Models[m].Name, Rate: rapid.Float64Range(0, 1e5).Draw(t, "rate"), Wait: rapid.Float64Range(0, 0.1).Draw(t, "wait"),
				})
			}
		}
		in.Regions = append(in.Regions, region)
	}
	for s := range rapid.IntRange(1, 4).Draw(t, "services") {
		in.Spec.Services = append(in.Spec.Services, drawService(t, fmt.Sprintf("s%d.", s), names, in.Spec.Models))
	}
	for c := range rapid.IntRange(1, 12).Draw(t, "cells") {
		cell := steer.Cell{Name: cellName(c)}
		for range regions {
			cell.RTT = append(cell.RTT, float32(rapid.Float64Range(0.001, 0.3).Draw(t, "rtt")))
		}
		in.Cells = append(in.Cells, cell)
		for s := range in.Spec.Services {
			for m := range models {
				if rapid.Bool().Draw(t, "asks") {
					in.Demand = append(in.Demand, steer.CellDemand{
						Service: in.Spec.Services[s].Name, Model: in.Spec.Models[m].Name, Cell: cell.Name,
						Region: names[0], Rate: rapid.Float64Range(0, 3e4).Draw(t, "demand"),
					})
				}
			}
		}
	}
	return in
}

func drawService(t *rapid.T, name string, regions []string, models []spec.Model) spec.Service {
	svc := spec.Service{Name: name, Mode: rapid.SampledFrom([]string{"latency", "latency", "geo", "weighted", "failover"}).Draw(t, "mode")}
	if rapid.IntRange(0, 2).Draw(t, "kept to some") == 0 {
		svc.Regions = rapid.SliceOfNDistinct(rapid.SampledFrom(regions), 1, len(regions), rapid.ID[string]).Draw(t, "regions of service")
	}
	if rapid.IntRange(0, 2).Draw(t, "serves some") == 0 {
		svc.Models = []string{rapid.SampledFrom(models).Draw(t, "model of service").Name}
	}
	switch svc.Mode {
	case "weighted":
		svc.Weights = map[string]float64{}
		for _, r := range regions {
			svc.Weights[r] = float64(rapid.IntRange(0, 10).Draw(t, "weight"))
		}
	case "failover":
		svc.Order = rapid.Permutation(regions).Draw(t, "order")
	}
	return svc
}

// allQueries lists a query for every service, cell (including the unknown one) and many client networks.
func allQueries(in *steer.PlanInput, networks int) (out []steer.PickQuery) {
	drained, lost := outageSets(in)
	for s := range in.Spec.Services {
		for c := int32(-1); int(c) < len(in.Cells); c++ {
			for n := range networks {
				out = append(out, steer.PickQuery{Service: s, Cell: c, Key: prefixKey(n), Drained: drained, Unavailable: lost})
			}
		}
	}
	return out
}

func mayServe(in *steer.PlanInput, svc *spec.Service, r int) bool {
	if len(svc.Regions) == 0 {
		return true
	}
	for _, name := range svc.Regions {
		if name == in.Spec.Regions[r].Name {
			return true
		}
	}
	return false
}

// checkAnswer returns an error for an answer that breaks the rules: a region of the service, and never a drained or
// unavailable one while a better one exists.
func checkAnswer(in *steer.PlanInput, table *steer.Table, q *steer.PickQuery) error {
	c := table.PickRegion(q)
	svc := &in.Spec.Services[q.Service]
	if c.Region < 0 || c.Region >= len(in.Spec.Regions) {
		return fmt.Errorf("%s: no region answers cell %d", svc.Name, q.Cell)
	}
	if !mayServe(in, svc, c.Region) {
		return fmt.Errorf("%s: cell %d goes to region %d, which may not serve it", svc.Name, q.Cell, c.Region)
	}
	rank := func(r int) int {
		switch st := in.Regions[r]; {
		case !st.Drained && !st.Dead:
			return 0
		case !st.Dead:
			return 1
		case !st.Drained:
			return 2
		}
		return 3
	}
	for r := range in.Regions {
		if mayServe(in, svc, r) && rank(r) < rank(c.Region) {
			return fmt.Errorf("%s: cell %d goes to region %d (%+v) though %d is %+v", svc.Name, q.Cell, c.Region, in.Regions[c.Region], r, in.Regions[r])
		}
	}
	return nil
}

func TestEveryClientGetsTheBestEligibleRegion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		in.Prev = steer.SolvePlan(in).Plan
		// Regions change under the plan, as between two plans; the masks are the nodes' own.
		for r := range in.Regions {
			in.Regions[r].Drained = in.Regions[r].Drained != rapid.Bool().Draw(t, "drain")
			in.Regions[r].Dead = in.Regions[r].Dead != rapid.Bool().Draw(t, "lose")
		}
		for _, plan := range []*steer.Plan{nil, in.Prev, steer.SolvePlan(in).Plan} {
			table := steer.CompileTable(in.Spec, inputGeography(in), plan)
			for _, q := range allQueries(in, 3) {
				if err := checkAnswer(in, table, &q); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestUnchangedInputMovesNoClients(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		first := steer.SolvePlan(in)
		before := steer.CompileTable(in.Spec, inputGeography(in), first.Plan)
		in.Prev = first.Plan
		again := steer.SolvePlan(in)
		if again.Publish {
			t.Fatalf("the same world is published twice: %s, cost %v after %v", again.Reason, again.Cost, again.PrevCost)
		}
		// If it is published anyway, as by a new leader after an election, it still moves no client.
		after := steer.CompileTable(in.Spec, inputGeography(in), again.Plan)
		for _, q := range allQueries(in, 20) {
			if a, b := before.PickRegion(&q), after.PickRegion(&q); a.Region != b.Region {
				t.Fatalf("service %d, cell %d, network %d moves from %d (%s) to %d (%s)", q.Service, q.Cell, q.Key, a.Region, a.Reason, b.Region, b.Reason)
			}
		}
	})
}

// networksPerCell is the number of client networks per cell; the realized part of a weight w has a standard deviation
// of sqrt(w(1-w)/networks).
const networksPerCell = 400

func TestLoadStaysWithinItsShareWhenCapacitySuffices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		// One pool: every service is steered by latency over all regions, and all demand is for one model.
		in.Spec.Models = in.Spec.Models[:1]
		room, demand := 0.0, 0.0
		for s := range in.Spec.Services {
			in.Spec.Services[s].Mode, in.Spec.Services[s].Regions, in.Spec.Services[s].Models = "latency", nil, nil
		}
		limit := make([]float64, len(in.Regions))
		for r := range in.Regions {
			st := &in.Regions[r]
			for m := range st.Models {
				st.Models[m].Name = fmt.Sprintf("other%d", m)
			}
			if len(st.Models) > 0 {
				st.Models = st.Models[:1]
				st.Models[0].Name = "m0"
			}
			if !st.Drained && !st.Dead && len(st.Models) > 0 {
				limit[r] = st.Models[0].Rate * in.Spec.Regions[r].MaxShare
			}
			room += limit[r]
		}
		for d := range in.Demand {
			in.Demand[d].Model = "m0"
			demand += in.Demand[d].Rate
		}
		if room == 0 || demand == 0 {
			t.Skip("no healthy region, or no demand")
		}
		if demand > room*0.95 {
			for d := range in.Demand {
				in.Demand[d].Rate *= room * 0.95 / demand
			}
			demand = room * 0.95
		}
		load, spread := realisedLoads(in, steer.SolvePlan(in).Plan)
		for r := range load {
			if load[r] > limit[r]+5*spread[r]+0.01*demand+1 {
				t.Fatalf("region %d gets %.0f tokens/s of %.0f, its limit is %.0f, give or take %.0f", r, load[r], demand, limit[r], 5*spread[r])
			}
		}
	})
}

// realisedLoads is the load of each region when every cell's demand is spread evenly over its client networks, and
// the standard deviation of it.
func realisedLoads(in *steer.PlanInput, p *steer.Plan) (load, deviation []float64) {
	table := steer.CompileTable(in.Spec, inputGeography(in), p)
	load, deviation = make([]float64, len(in.Regions)), make([]float64, len(in.Regions))
	drained, lost := outageSets(in)
	index := map[string]int{}
	for s := range in.Spec.Services {
		index[in.Spec.Services[s].Name] = s
	}
	cells := map[string]int32{}
	for c := range in.Cells {
		cells[in.Cells[c].Name] = int32(c)
	}
	rates := map[[2]int32]float64{}
	for _, d := range in.Demand {
		rates[[2]int32{int32(index[d.Service]), cells[d.Cell]}] += d.Rate
	}
	for k, rate := range rates {
		got := make([]float64, len(in.Regions))
		for n := range networksPerCell {
			q := steer.PickQuery{Service: int(k[0]), Cell: k[1], Key: prefixKey(n), Drained: drained, Unavailable: lost}
			got[table.PickRegion(&q).Region] += 1.0 / networksPerCell
		}
		for r, part := range got {
			load[r] += rate * part
			deviation[r] += rate * rate * part * (1 - part) / networksPerCell
		}
	}
	for r := range deviation {
		deviation[r] = math.Sqrt(deviation[r])
	}
	return load, deviation
}
