package global

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/admin"
)

// regionMove is a group of clients that moves from one region to another, or stays.
type regionMove struct {
	cell     int32
	from, to string
}

// prediction is the predicted wait for the first token of a part of the demand, in seconds.
type prediction struct{ seconds, weight float64 }

// moveTally sums up what a dry run finds for one service.
type moveTally struct {
	total                     float64
	flows                     map[regionMove]float64
	before, after             []prediction
	idleCells, idleCellsMoved int        // cells without demand
	idleTally                 *moveTally // of the idle cells, each with the same weight
}

func newMoveTally() *moveTally { return &moveTally{flows: map[regionMove]float64{}} }

// addDemand adds a part of the demand with its predictions; negative predictions are unknown.
func (t *moveTally) addDemand(f regionMove, weight, before, after float64) {
	t.total += weight
	t.flows[f] += weight
	if before >= 0 && after >= 0 {
		t.before = append(t.before, prediction{before, weight})
		t.after = append(t.after, prediction{after, weight})
	}
}

// askedCells returns the cells with demand, and whether any part of each moves.
func (t *moveTally) askedCells() map[int32]bool {
	out := map[int32]bool{}
	for f := range t.flows {
		out[f.cell] = out[f.cell] || f.from != f.to
	}
	return out
}

// listMoves returns the shares (0..1) of the service's demand that move; of its cells if it has no demand.
func (t *moveTally) listMoves(service string) (out []admin.Move) {
	quiet := t.total == 0
	if quiet && t.idleTally != nil {
		t = t.idleTally
	}
	for f, w := range t.flows {
		if f.from != f.to {
			out = append(out, admin.Move{Service: service, Cell: geo.CellName(f.cell), From: f.from, To: f.to, Share: w / t.total, Quiet: quiet})
		}
	}
	return out
}

// buildReport summarizes the tally.
func (t *moveTally) buildReport(service string) admin.ReplayService {
	out := admin.ReplayService{Service: service, QuietCells: t.idleCells, QuietCellsMoved: t.idleCellsMoved}
	for _, moved := range t.askedCells() {
		out.Cells++
		if moved {
			out.CellsMoved++
		}
	}
	for f, w := range t.flows {
		if f.from != f.to {
			out.Moved += w / t.total
		}
	}
	out.P50Before, out.P50After = weightedMedian(t.before), weightedMedian(t.after)
	return out
}

// weightedMedian returns the weighted median in seconds; 0 for an empty list.
func weightedMedian(all []prediction) float64 {
	slices.SortFunc(all, func(a, b prediction) int { return cmp.Compare(a.seconds, b.seconds) })
	half := 0.0
	for _, p := range all {
		half += p.weight / 2
	}
	for _, p := range all {
		if half -= p.weight; half <= 0 {
			return p.seconds
		}
	}
	return 0
}

// largestMoves returns the largest moves of all services, the largest first.
func (h *specDryRun) largestMoves() []admin.Move {
	out := []admin.Move{}
	for i, t := range h.tallies {
		if h.serviceMap[i] >= 0 {
			out = append(out, t.listMoves(h.before.Spec.Services[i].Name)...)
		}
	}
	slices.SortFunc(out, func(a, b admin.Move) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Cell, b.Cell),
			cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return out[:min(len(out), maxListedMoves)]
}

// buildReplay reports the result of a dry run; minutes are the minutes available for replay, including the flows that
// were dropped.
func (h *specDryRun) buildReplay(minutes []observedDemand) *admin.Replay {
	out := &admin.Replay{Minutes: h.replayedMinutes, Services: []admin.ReplayService{}}
	for i, t := range h.tallies {
		name := h.before.Spec.Services[i].Name
		if h.serviceMap[i] < 0 {
			out.Notes = append(out.Notes, "service "+name+" is not in the new spec: its clients would get no answer")
			continue
		}
		out.Services = append(out.Services, t.buildReport(name))
	}
	if n := len(minutes); h.replayedMinutes < n {
		out.Notes = append(out.Notes, fmt.Sprintf("there was time for the newest %d of %d minutes", h.replayedMinutes, n))
	}
	left := 0
	for i := range minutes {
		left = max(left, minutes[i].droppedFlows)
	}
	if left > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("demand of %d more services, models and cells than fit was not kept", left))
	}
	return out
}
