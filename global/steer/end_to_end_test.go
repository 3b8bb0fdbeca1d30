package steer_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

// universe draws several services of every mode over several models, some of them kept to a few regions, in a world
// where regions are drained, lost or without workers.
func universe(t *rapid.T) *steer.Input {
	in := &steer.Input{Spec: &spec.Spec{Steering: spec.Steering{DeadBand: 0.05, MaxStep: 0.25}}, SpecVersion: 1}
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
		region := steer.Region{
			Drained: rapid.IntRange(0, 3).Draw(t, "drained") == 0, Lost: rapid.IntRange(0, 5).Draw(t, "lost") == 0,
		}
		for m := range models {
			if rapid.IntRange(0, 4).Draw(t, "has") > 0 {
				region.Models = append(region.Models, steer.Model{
					Name: in.Spec.Models[m].Name, Rate: rapid.Float64Range(0, 1e5).Draw(t, "rate"), Wait: rapid.Float64Range(0, 0.1).Draw(t, "wait"),
				})
			}
		}
		in.Regions = append(in.Regions, region)
	}
	for s := range rapid.IntRange(1, 4).Draw(t, "services") {
		in.Spec.Services = append(in.Spec.Services, anyService(t, fmt.Sprintf("s%d.", s), names, in.Spec.Models))
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
					in.Demand = append(in.Demand, steer.Demand{
						Service: in.Spec.Services[s].Name, Model: in.Spec.Models[m].Name, Cell: cell.Name,
						Region: names[0], Rate: rapid.Float64Range(0, 3e4).Draw(t, "demand"),
					})
				}
			}
		}
	}
	return in
}

func anyService(t *rapid.T, name string, regions []string, models []spec.Model) spec.Service {
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

// everybody lists a query for every service, every cell, the unknown place and many client networks.
func everybody(in *steer.Input, networks int) (out []steer.Query) {
	drained, lost := masks(in)
	for s := range in.Spec.Services {
		for c := int32(-1); int(c) < len(in.Cells); c++ {
			for n := range networks {
				out = append(out, steer.Query{Service: s, Cell: c, Key: prefixKey(n), Drained: drained, Lost: lost})
			}
		}
	}
	return out
}

func mayServe(in *steer.Input, svc *spec.Service, r int) bool {
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

// holdsToTheRules reports the first answer that breaks one: everybody is answered, by a region of the service, and never
// by a drained or lost one while a better one is there.
func holdsToTheRules(in *steer.Input, table *steer.Table, q *steer.Query) error {
	c := table.Pick(q)
	svc := &in.Spec.Services[q.Service]
	if c.Region < 0 || c.Region >= len(in.Spec.Regions) {
		return fmt.Errorf("%s: nobody answers cell %d", svc.Name, q.Cell)
	}
	if !mayServe(in, svc, c.Region) {
		return fmt.Errorf("%s: cell %d goes to region %d, which may not serve it", svc.Name, q.Cell, c.Region)
	}
	rank := func(r int) int {
		switch st := in.Regions[r]; {
		case !st.Drained && !st.Lost:
			return 0
		case !st.Lost:
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

func TestEverybodyIsAnsweredByTheBestKindOfRegion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := universe(t)
		in.Prev = steer.Solve(in).Plan
		// The world changes under the plan, as it does between two plans; the masks are the nodes' own.
		for r := range in.Regions {
			in.Regions[r].Drained = in.Regions[r].Drained != rapid.Bool().Draw(t, "drain")
			in.Regions[r].Lost = in.Regions[r].Lost != rapid.Bool().Draw(t, "lose")
		}
		for _, plan := range []*steer.Plan{nil, in.Prev, steer.Solve(in).Plan} {
			table := steer.Compile(in.Spec, geography(in), plan)
			for _, q := range everybody(in, 3) {
				if err := holdsToTheRules(in, table, &q); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestChangingNothingMovesNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := universe(t)
		first := steer.Solve(in)
		before := steer.Compile(in.Spec, geography(in), first.Plan)
		in.Prev = first.Plan
		again := steer.Solve(in)
		if again.Publish {
			t.Fatalf("the same world is published twice: %s, cost %v after %v", again.Reason, again.Cost, again.PrevCost)
		}
		// Published all the same, as by a new leader after an election, it would still move nobody.
		after := steer.Compile(in.Spec, geography(in), again.Plan)
		for _, q := range everybody(in, 20) {
			if a, b := before.Pick(&q), after.Pick(&q); a.Region != b.Region {
				t.Fatalf("service %d, cell %d, network %d moves from %d (%s) to %d (%s)", q.Service, q.Cell, q.Key, a.Region, a.Reason, b.Region, b.Reason)
			}
		}
	})
}

// networks is how many client networks stand for a cell; what they realise of a weight w has a standard deviation of
// sqrt(w(1-w)/networks).
const networks = 400

func TestLoadStaysInItsShareWhenEverythingFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := universe(t)
		// One pool: every service is steered by latency over every region, and everybody asks for one model.
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
			if !st.Drained && !st.Lost && len(st.Models) > 0 {
				limit[r] = st.Models[0].Rate * in.Spec.Regions[r].MaxShare
			}
			room += limit[r]
		}
		for d := range in.Demand {
			in.Demand[d].Model = "m0"
			demand += in.Demand[d].Rate
		}
		if room == 0 || demand == 0 {
			t.Skip("nothing is well, or nobody asks")
		}
		if demand > room*0.95 {
			for d := range in.Demand {
				in.Demand[d].Rate *= room * 0.95 / demand
			}
			demand = room * 0.95
		}
		load, spread := realised(in, steer.Solve(in).Plan)
		for r := range load {
			if load[r] > limit[r]+5*spread[r]+0.01*demand+1 {
				t.Fatalf("region %d gets %.0f tokens/s of %.0f, its limit is %.0f, give or take %.0f", r, load[r], demand, limit[r], 5*spread[r])
			}
		}
	})
}

// realised is what each region gets when every cell's demand is spread evenly over its client networks, and the standard
// deviation of that.
func realised(in *steer.Input, p *steer.Plan) (load, deviation []float64) {
	table := steer.Compile(in.Spec, geography(in), p)
	load, deviation = make([]float64, len(in.Regions)), make([]float64, len(in.Regions))
	drained, lost := masks(in)
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
		for n := range networks {
			q := steer.Query{Service: int(k[0]), Cell: k[1], Key: prefixKey(n), Drained: drained, Lost: lost}
			got[table.Pick(&q).Region] += 1.0 / networks
		}
		for r, part := range got {
			load[r] += rate * part
			deviation[r] += rate * rate * part * (1 - part) / networks
		}
	}
	for r := range deviation {
		deviation[r] = math.Sqrt(deviation[r])
	}
	return load, deviation
}
