package global

import (
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

const (
	// sampledNetworks is the number of client networks sampled for a cell whose clients are split.
	sampledNetworks = 16
	// maxListedMoves bounds the moves in an answer; the largest are kept.
	maxListedMoves = 500
	// replayBudget bounds the time of a dry run. Minutes that do not fit are not replayed, and the answer reports
	// that.
	replayBudget = 4 * time.Second
)

// specDryRun compares a new spec with the one in force. Each is solved without history for every minute of observed
// demand, with the present capacity. So only the change of spec shows, and not what the plan in force is still
// damping.
type specDryRun struct {
	before, after   dryRunSide
	serviceMap      []int        // index before -> index after, or -1
	tallies         []*moveTally // by service before
	replayedMinutes int          // the minutes replayed
}

// dryRunSpec replays the minutes, newest first, with both specs.
func dryRunSpec(v *nodeSnapshot, next *spec.Spec, minutes []observedDemand) (*specDryRun, error) {
	f, err := newNodePolicy(v.Version+1, encodeSpec(next), v.atlas)
	if err != nil {
		return nil, err
	}
	h := &specDryRun{before: dryRunSide{snapshotWithPolicy(v.SteeringSnapshot, v.SteeringPolicy, time.Now())}, after: dryRunSide{snapshotWithPolicy(v.SteeringSnapshot, f.SteeringPolicy, time.Now())}}
	for i := range v.Spec.Services {
		h.serviceMap = append(h.serviceMap, f.ServiceIndex(v.Spec.Services[i].Name))
		h.tallies = append(h.tallies, newMoveTally())
	}
	begun := time.Now()
	for i := range minutes {
		if i > 0 && time.Since(begun) > replayBudget {
			break
		}
		h.replayDemand(minutes[i].demand)
		h.replayedMinutes++
	}
	if len(minutes) == 0 {
		h.before.solveForDemand(nil)
		h.after.solveForDemand(nil)
	}
	h.addIdleCells()
	return h, nil
}

// withPolicy returns the snapshot as it would be with another policy and no plan.
func snapshotWithPolicy(v *snapshot.SteeringSnapshot, f *snapshot.SteeringPolicy, now time.Time) *snapshot.SteeringSnapshot {
	out := snapshot.NewSteeringSnapshot(snapshot.Inputs{
		Policy: f, Drains: v.Drains, Children: v.Children, Votes: v.Votes, Now: now, WallShift: v.WallShift, Settled: true,
	})
	for r := range out.Regions {
		if old := v.RegionIndex(f.Spec.Regions[r].Name); old >= 0 && !v.Regions[old].HasReport() && !v.Regions[old].IsUnreachableByAll() {
			out.Regions[r].State = snapshot.SilenceSuppressed // too early to decide
		}
	}
	if v.RTTs != nil {
		out.SetRTTs(snapshot.EstimateRTTs(f, v.Children, v.RTTs.MaxAge, out.MadeAt))
	}
	return out
}

// dryRunSide is one of the two specs of a dry run, with the plan that its demand converges to.
type dryRunSide struct{ *snapshot.SteeringSnapshot }

// solveForDemand gives the snapshot the plan that a constant demand converges to.
func (v dryRunSide) solveForDemand(demand []steer.CellDemand) {
	v.Plan = nil
	in := v.BuildPlanInput()
	in.Demand, in.Cells = demand, nil
	seen := map[string]bool{}
	for i := range demand {
		name := demand[i].Cell
		if cell := geo.ParseCellName(name); cell != geo.NoCell && !seen[name] {
			seen[name] = true
			if rtt := v.Geo.RTTRow(cell); rtt != nil {
				in.Cells = append(in.Cells, steer.Cell{Name: name, RTT: rtt})
			}
		}
	}
	v.Plan = steer.SolvePlan(in).Plan
	v.Table = steer.CompileTable(v.Spec, v.Geo, v.Plan)
}

// replayMinutesFor returns how many minutes an apply replays: a dry run all of them, a real one only the newest.
func replayMinutesFor(dryRun bool) int {
	if dryRun {
		return int(replayWindow/time.Minute) + 1
	}
	return 1
}

// replayDemand solves both specs for one minute and adds up what moves.
func (h *specDryRun) replayDemand(demand []steer.CellDemand) {
	h.before.solveForDemand(demand)
	h.after.solveForDemand(demand)
	for i, byCell := range h.before.demandByCell(demand) {
		if h.serviceMap[i] < 0 {
			continue
		}
		for cell, weight := range byCell {
			h.compareCell(i, cell, weight, h.tallies[i])
		}
	}
}

// addIdleCells adds, for every service, the cells without demand. Each counts alike.
func (h *specDryRun) addIdleCells() {
	for i := range h.tallies {
		t := h.tallies[i]
		if h.serviceMap[i] < 0 {
			continue
		}
		asked, still := t.askedCells(), newMoveTally()
		for _, c := range h.before.Cells {
			if _, ok := asked[c.ID]; ok {
				continue
			}
			t.idleCells++
			if h.compareCell(i, c.ID, 1, still) {
				t.idleCellsMoved++
			}
		}
		t.idleTally = still
	}
}

// compareCell adds the demand of one cell for a service to t, and reports whether any of it moves.
func (h *specDryRun) compareCell(service int, cell int32, weight float64, t *moveTally) (moved bool) {
	for n := range uint64(sampledNetworks) {
		a, x := h.before.sampleRegion(service, cell, n)
		b, y := h.after.sampleRegion(h.serviceMap[service], cell, n)
		part := weight / sampledNetworks
		if !x && !y {
			part = weight // all client networks have the same weight
		}
		f := regionMove{cell: cell, from: h.before.regionName(a), to: h.after.regionName(b)}
		t.addDemand(f, part, h.before.predictedDelay(service, cell, a), h.after.predictedDelay(h.serviceMap[service], cell, b))
		if moved = moved || f.from != f.to; !x && !y {
			break
		}
	}
	return moved
}

// sampleRegion picks a region for the n-th of a series of client networks whose hashes are evenly spaced.
func (v dryRunSide) sampleRegion(service int, cell int32, n uint64) (region int, split bool) {
	q := steer.PickQuery{Service: service, Cell: cell, Key: n * goldenRatio64, Drained: v.Drained, Unavailable: v.Unavailable[service], DrainRemaining: v.DrainRemaining}
	c := v.Table.PickRegion(&q)
	return c.Region, c.Split
}

// predictedDelay returns a cell's RTT to a region plus the wait measured there now, in seconds; negative if unknown.
func (v dryRunSide) predictedDelay(service int, cell int32, region int) float64 {
	row := v.Geo.RTTRow(cell)
	if region < 0 || row == nil {
		return -1
	}
	return float64(row[region]) + v.Regions[region].Waits[service]
}

func (v dryRunSide) regionName(region int) string {
	if region < 0 {
		return ""
	}
	return v.Spec.Regions[region].Name
}

// demandByCell returns each service's demand by cell, in tokens/s. All cells unknown to the map count as one.
func (v dryRunSide) demandByCell(demand []steer.CellDemand) []map[int32]float64 {
	out := make([]map[int32]float64, len(v.Spec.Services))
	for i := range demand {
		d := &demand[i]
		s := v.ServiceIndex(d.Service)
		if s < 0 {
			continue
		}
		if out[s] == nil {
			out[s] = map[int32]float64{}
		}
		out[s][geo.ParseCellName(d.Cell)] += d.Rate
	}
	return out
}
