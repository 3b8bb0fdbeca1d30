package global

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/admin"
)

// flow is a group of clients that go from one region to another, or stay.
type flow struct {
	cell     int32
	from, to string
}

// prediction is how long a part of the demand waits for its answer to begin, in seconds.
type prediction struct{ seconds, weight float64 }

// tally adds up what a rehearsal finds for one service.
type tally struct {
	total             float64
	flows             map[flow]float64
	before, after     []prediction
	quiet, quietMoved int    // cells that nobody asked from
	still             *tally // of those, each counting alike
}

func newTally() *tally { return &tally{flows: map[flow]float64{}} }

// add takes a part of the demand with what is predicted for it; negative predictions are unknown.
func (t *tally) add(f flow, weight, before, after float64) {
	t.total += weight
	t.flows[f] += weight
	if before >= 0 && after >= 0 {
		t.before = append(t.before, prediction{before, weight})
		t.after = append(t.after, prediction{after, weight})
	}
}

// cells are those that were asked from, with whether any part of them moves.
func (t *tally) cells() map[int32]bool {
	out := map[int32]bool{}
	for f := range t.flows {
		out[f.cell] = out[f.cell] || f.from != f.to
	}
	return out
}

// moves are the parts of the service's demand that go elsewhere, 0..1; of its cells when nobody asked for it.
func (t *tally) moves(service string) (out []admin.Move) {
	quiet := t.total == 0
	if quiet && t.still != nil {
		t = t.still
	}
	for f, w := range t.flows {
		if f.from != f.to {
			out = append(out, admin.Move{Service: service, Cell: geo.CellName(f.cell), From: f.from, To: f.to, Share: w / t.total, Quiet: quiet})
		}
	}
	return out
}

// report is the tally in a few figures.
func (t *tally) report(service string) admin.ReplayService {
	out := admin.ReplayService{Service: service, QuietCells: t.quiet, QuietCellsMoved: t.quietMoved}
	for _, moved := range t.cells() {
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
	out.P50Before, out.P50After = median(t.before), median(t.after)
	return out
}

// median is the weighted one, in seconds; 0 of nothing.
func median(all []prediction) float64 {
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

// moves are the largest of all services, the largest first.
func (h *rehearsal) moves() []admin.Move {
	out := []admin.Move{}
	for i, t := range h.services {
		if h.to[i] >= 0 {
			out = append(out, t.moves(h.before.spec.Services[i].Name)...)
		}
	}
	slices.SortFunc(out, func(a, b admin.Move) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Cell, b.Cell),
			cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return out[:min(len(out), maxMoves)]
}

// report says what a dry run found; minutes is how many there were to replay, and left the flows that were never kept.
func (h *rehearsal) report(minutes []observed) *admin.Replay {
	out := &admin.Replay{Minutes: h.minutes, Services: []admin.ReplayService{}}
	for i, t := range h.services {
		name := h.before.spec.Services[i].Name
		if h.to[i] < 0 {
			out.Notes = append(out.Notes, "service "+name+" is not in the new spec: its clients would get no answer")
			continue
		}
		out.Services = append(out.Services, t.report(name))
	}
	if n := len(minutes); h.minutes < n {
		out.Notes = append(out.Notes, fmt.Sprintf("there was time for the newest %d of %d minutes", h.minutes, n))
	}
	left := 0
	for i := range minutes {
		left = max(left, minutes[i].left)
	}
	if left > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("demand of %d more services, models and cells than fit was not kept", left))
	}
	return out
}
