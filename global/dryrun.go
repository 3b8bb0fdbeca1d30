package global

import (
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

const (
	// samples is how many client networks stand for a cell whose clients are split.
	samples = 16
	// maxMoves bounds an answer; the largest are kept.
	maxMoves = 500
	// replayBudget is how long a dry run may take: minutes that it leaves no time for are not replayed, and said to be so.
	replayBudget = 4 * time.Second
)

// rehearsal is a new spec beside the one in force. Each is solved afresh for every minute of observed demand, on the
// capacity of now, so that only the change of spec shows, not what the plan in force is still damping.
type rehearsal struct {
	before, after *View
	to            []int    // by service before: its index after, or -1
	services      []*tally // by service before
	minutes       int      // that were replayed
}

// rehearse replays the minutes, newest first, through both specs.
func (v *View) rehearse(next *spec.Spec, minutes []observed) (*rehearsal, error) {
	f, err := newFrame(v.version+1, encodeSpec(next), v.atlas)
	if err != nil {
		return nil, err
	}
	h := &rehearsal{before: v.as(v.frame), after: v.as(f)}
	for i := range v.spec.Services {
		h.to = append(h.to, f.service(v.spec.Services[i].Name))
		h.services = append(h.services, newTally())
	}
	begun := time.Now()
	for i := range minutes {
		if i > 0 && time.Since(begun) > replayBudget {
			break
		}
		h.replay(minutes[i].demand)
		h.minutes++
	}
	if len(minutes) == 0 {
		h.before.settleOn(nil)
		h.after.settleOn(nil)
	}
	h.quiet()
	return h, nil
}

// as is the View as it would be under a frame, with no plan yet.
func (v *View) as(f *frame) *View {
	out := newView(f, v.state, v.children, v.quorum, time.Now(), true)
	for r := range out.regions {
		if old := v.region(f.spec.Regions[r].Name); old >= 0 && !v.regions[old].heard && !v.regions[old].gone {
			out.regions[r].gone, out.regions[r].dead = false, false // still too early to tell
		}
	}
	if v.near != nil {
		out.adopt(nearness(f, v.children, v.near.limit, out.made))
	}
	return out
}

// settleOn gives the View the plan that a demand leads to in the end.
func (v *View) settleOn(demand []steer.Demand) {
	v.plan = nil
	in := v.input()
	in.Demand, in.Cells = demand, nil
	seen := map[string]bool{}
	for i := range demand {
		name := demand[i].Cell
		if cell := geo.CellNamed(name); cell != geo.NoCell && !seen[name] {
			seen[name] = true
			if rtt := v.geo.Row(cell); rtt != nil {
				in.Cells = append(in.Cells, steer.Cell{Name: name, RTT: rtt})
			}
		}
	}
	v.plan = steer.Solve(in).Plan
	v.table = steer.Compile(v.spec, v.geo, v.plan)
}

// minutesFor is how much of the past an apply looks at: a dry run all of it.
func minutesFor(dryRun bool) int {
	if dryRun {
		return int(replayed/time.Minute) + 1
	}
	return 1
}

// replay solves both specs for one minute and adds up what moves.
func (h *rehearsal) replay(demand []steer.Demand) {
	h.before.settleOn(demand)
	h.after.settleOn(demand)
	for i, byCell := range h.before.demandByCell(demand) {
		if h.to[i] < 0 {
			continue
		}
		for cell, weight := range byCell {
			h.compare(i, cell, weight, h.services[i])
		}
	}
}

// quiet adds, for every service, the cells that nobody has asked from; each counts alike.
func (h *rehearsal) quiet() {
	for i := range h.services {
		t := h.services[i]
		if h.to[i] < 0 {
			continue
		}
		asked, still := t.cells(), newTally()
		for _, c := range h.before.atlas.Cells() {
			if _, ok := asked[c.ID]; ok {
				continue
			}
			t.quiet++
			if h.compare(i, c.ID, 1, still) {
				t.quietMoved++
			}
		}
		t.still = still
	}
}

// compare adds to t what one cell of a service asks, and reports whether anything of it moves.
func (h *rehearsal) compare(service int, cell int32, weight float64, t *tally) (moved bool) {
	for n := range uint64(samples) {
		a, x := h.before.sample(service, cell, n)
		b, y := h.after.sample(h.to[service], cell, n)
		part := weight / samples
		if !x && !y {
			part = weight // one client network is as good as another
		}
		f := flow{cell: cell, from: h.before.regionName(a), to: h.after.regionName(b)}
		t.add(f, part, h.before.predicted(service, cell, a), h.after.predicted(h.to[service], cell, b))
		if moved = moved || f.from != f.to; !x && !y {
			break
		}
	}
	return moved
}

// sample picks for the n-th of a row of client networks that lie evenly in the space of hashes.
func (v *View) sample(service int, cell int32, n uint64) (region int, split bool) {
	q := steer.Query{Service: service, Cell: cell, Key: n * golden, Drained: v.drained, Lost: v.lost[service]}
	c := v.table.Pick(&q)
	return c.Region, c.Split
}

// predicted is a cell's RTT to a region and the wait there as it is measured now, in seconds; negative when unknown.
func (v *View) predicted(service int, cell int32, region int) float64 {
	row := v.geo.Row(cell)
	if region < 0 || row == nil {
		return -1
	}
	return float64(row[region]) + v.regions[region].wait[service]
}

func (v *View) regionName(region int) string {
	if region < 0 {
		return ""
	}
	return v.spec.Regions[region].Name
}

// demandByCell is what each service is asked for by cell, in tokens/s; cells that the map does not know are one.
func (v *View) demandByCell(demand []steer.Demand) []map[int32]float64 {
	out := make([]map[int32]float64, len(v.spec.Services))
	for i := range demand {
		d := &demand[i]
		s := v.service(d.Service)
		if s < 0 {
			continue
		}
		if out[s] == nil {
			out[s] = map[int32]float64{}
		}
		out[s][geo.CellNamed(d.Cell)] += d.Rate
	}
	return out
}
