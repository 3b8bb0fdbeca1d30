package steer_test

import (
	"fmt"
	"math"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

const model = "m"

// world draws a spec of one latency service, regions on a line and cells beside them.
func world(t *rapid.T) *steer.Input {
	regions := rapid.IntRange(1, 8).Draw(t, "regions")
	cells := rapid.IntRange(1, 20).Draw(t, "cells")
	in := &steer.Input{Spec: oneService(regions), SpecVersion: 1}
	for r := range regions {
		in.Spec.Regions[r].MaxShare = rapid.Float64Range(0.3, 1).Draw(t, "max_share")
		in.Spec.Regions[r].BiasMS = rapid.Float64Range(-20, 20).Draw(t, "bias")
		in.Regions = append(in.Regions, steer.Region{
			Drained: rapid.IntRange(0, 3).Draw(t, "drained") == 0,
			Lost:    rapid.IntRange(0, 5).Draw(t, "lost") == 0,
			Models: []steer.Model{{
				Name: model,
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
		in.Demand = append(in.Demand, steer.Demand{
			Service: service, Model: model, Cell: cell.Name, Rate: rapid.Float64Range(0, 3e4).Draw(t, "demand"),
		})
	}
	return in
}

const service = "chat.api.example."

func cellName(c int) string { return fmt.Sprintf("cell-%02d", c) }

func oneService(regions int) *spec.Spec {
	s := &spec.Spec{
		Services: []spec.Service{{Name: service, Mode: "latency"}},
		Models:   []spec.Model{{Name: model}},
		Steering: spec.Steering{DeadBand: 0.05, MaxStep: 0.25},
	}
	for r := range regions {
		s.Regions = append(s.Regions, spec.Region{Name: fmt.Sprintf("r%d", r), MaxShare: 0.85})
	}
	return s
}

func geography(in *steer.Input) *steer.Geography {
	var names []string
	var rtt []float32
	for _, c := range in.Cells {
		names = append(names, c.Name)
		rtt = append(rtt, c.RTT...)
	}
	return steer.NewGeography(len(in.Spec.Regions), names, rtt)
}

// masks are the sets that a node would lay over the plan.
func masks(in *steer.Input) (drained, lost steer.Set) {
	for r, s := range in.Regions {
		if s.Drained {
			drained.Add(r)
		}
		if s.Lost {
			lost.Add(r)
		}
	}
	return drained, lost
}

// loads is the demand each region gets when every cell is split as the plan says.
func loads(in *steer.Input, p *steer.Plan) []float64 {
	out := make([]float64, len(in.Spec.Regions))
	drained, lost := masks(in)
	table := steer.Compile(in.Spec, geography(in), p)
	rows := map[string][]steer.Share{}
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
		out[table.Pick(&steer.Query{Cell: int32(c), Drained: drained, Lost: lost}).Region] += d.Rate
	}
	return out
}

func close2(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }
