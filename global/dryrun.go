package global

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

const (
	// samples is how many client networks stand for a cell whose clients are split.
	samples = 16
	// maxMoves bounds an answer; the largest are kept.
	maxMoves = 500
)

// moves is what traffic a new spec would serve elsewhere. Both specs are solved afresh on the same demand and capacity,
// so that only the change of spec shows, not what the plan in force is still damping.
func (v *View) moves(next *spec.Spec) ([]admin.Move, error) {
	f, err := newFrame(v.version+1, spec.Encode(next), v.atlas)
	if err != nil {
		return nil, err
	}
	before, after := v.solved(v.frame), v.solved(f)
	demand := before.demandByCell()
	var out []admin.Move
	for i := range v.spec.Services {
		if j := f.service(v.spec.Services[i].Name); j >= 0 {
			out = append(out, compare(before, after, i, j, demand[i])...)
		}
	}
	slices.SortStableFunc(out, func(a, b admin.Move) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Cell, b.Cell))
	})
	return append([]admin.Move{}, out[:min(len(out), maxMoves)]...), nil
}

// solved is the View as it would be under a frame once its plan has settled.
func (v *View) solved(f *frame) *View {
	out := newView(f, v.state, v.children, v.quorum, time.Now(), true)
	for r := range out.regions {
		if old := v.region(f.spec.Regions[r].Name); old >= 0 && !v.regions[old].heard && !v.regions[old].gone {
			out.regions[r].gone, out.regions[r].dead = false, false // still too early to tell
		}
	}
	if v.near != nil {
		out.adopt(nearness(f, v.children, v.near.limit, out.made))
	}
	in := out.input()
	out.plan = steer.Solve(in).Plan
	out.table = steer.Compile(f.spec, out.geo, out.plan)
	return out
}

// demandByCell is each cell's part of each service's demand; empty for a service that nobody asks for.
func (v *View) demandByCell() []map[int32]float64 {
	out := make([]map[int32]float64, len(v.spec.Services))
	total := make([]float64, len(out))
	for r := range v.regions {
		for _, d := range v.regions[r].group.Summary.Demand {
			s := v.service(d.Service)
			if s < 0 || d.TokensPerSec <= 0 {
				continue
			}
			if out[s] == nil {
				out[s] = map[int32]float64{}
			}
			out[s][geo.CellNamed(d.Cell)] += float64(d.TokensPerSec)
			total[s] += float64(d.TokensPerSec)
		}
	}
	for s := range out {
		for c := range out[s] {
			out[s][c] /= total[s]
		}
	}
	return out
}

// compare lists the moves of one service, i before and j after, weighted by demand or else by cell.
func compare(before, after *View, i, j int, weight map[int32]float64) []admin.Move {
	if len(weight) == 0 {
		cells := before.atlas.Cells()
		weight = make(map[int32]float64, len(cells))
		for _, c := range cells {
			weight[c.ID] = 1 / float64(len(cells))
		}
	}
	type key struct {
		cell     int32
		from, to string
	}
	sum := map[key]float64{}
	for cell, w := range weight {
		for n := range uint64(samples) {
			from, to := before.sample(i, cell, n), after.sample(j, cell, n)
			if from != to {
				sum[key{cell, from, to}] += w / samples
			}
		}
	}
	var out []admin.Move
	for k, share := range sum {
		out = append(out, admin.Move{
			Service: before.spec.Services[i].Name, Cell: geo.CellName(k.cell), From: k.from, To: k.to, Share: share,
		})
	}
	slices.SortFunc(out, func(a, b admin.Move) int {
		return cmp.Or(cmp.Compare(a.Cell, b.Cell), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return out
}

// sample picks for the n-th of a row of client networks that lie evenly in the space of hashes.
func (v *View) sample(service int, cell int32, n uint64) string {
	q := steer.Query{
		Service: service, Cell: cell, Key: n * golden, Drained: v.drained, Lost: v.lost[service],
	}
	if r := v.table.Pick(&q).Region; r >= 0 {
		return v.spec.Regions[r].Name
	}
	return ""
}
