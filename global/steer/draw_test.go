package steer_test

import (
	"fmt"
	"math"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
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
