package global

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// Times of a region switch.
const (
	// switchProblemTolerance is how long the target may lack reports or capacity before a switch is aborted: longer
	// than an election and a missed report, shorter than clients tolerate.
	switchProblemTolerance = 15 * time.Second
	// switchVerifyTimeout is how long the answers may take to leave the region once its drain is complete.
	switchVerifyTimeout = 2 * time.Minute
	// switchDrainTimeout is how long running requests may take, as long as `drain --wait` waits; then the switch goes
	// on with a note.
	switchDrainTimeout = 10 * time.Minute
	// switchBackTimeout is how long the region may take to get clients after a practice. The ramp of a region that
	// returns is 30 s by default.
	switchBackTimeout = 5 * time.Minute
	// switchLease is how much longer than its steps the drain of a practice lasts: without any leader the clients
	// return by themselves.
	switchLease = switchVerifyTimeout + switchDrainTimeout + 3*time.Minute
)

// switchDriver takes the steps of a switch on the leader.
type switchDriver struct {
	name     string
	log      *slog.Logger
	node     *consensus.Node
	snapshot *currentSnapshot
	status   *statusReporter

	number       uint64 // the switch that problemSince belongs to
	problemSince time.Time
}

// advanceSwitch takes the next step of the switch in progress, if it is due.
func (s *switchDriver) advanceSwitch(ctx context.Context, st *consensus.State, now time.Time) error {
	g, v := st.Switch, s.snapshot.Load()
	if !g.IsActive() || v == nil || !v.isCurrent(st) {
		return nil
	}
	d := decideSwitchStep(g, s.observeSwitch(ctx, g, st, v, now))
	if d.next == "" {
		return nil
	}
	err := s.node.ChangeSwitch(ctx, consensus.SwitchChange{Number: g.Number, From: g.Step, Next: d.next, By: consensus.Attribution{Actor: s.name, Reason: d.note}})
	if err == nil {
		s.log.Info("region switch: next step", "from", g.From, "to", g.To, "step", d.next, "found", d.note)
	}
	return err
}

// observeSwitch returns what decides the next step.
func (s *switchDriver) observeSwitch(ctx context.Context, g *consensus.RegionSwitch, st *consensus.State, v *nodeSnapshot, now time.Time) *switchView {
	out := &switchView{now: now, inFlight: -1}
	for _, d := range st.Drains {
		if d.Path == g.From && (d.Until.IsZero() || now.Before(d.Until)) {
			out.drained, out.remaining = true, spec.DrainShare(d.At, d.Over, now)
		}
	}
	from := v.RegionIndex(g.From)
	if from >= 0 {
		out.answers = countCellsOf(v, from)
	}
	if from >= 0 && g.Step == consensus.SwitchDrain {
		ctx, cancel := context.WithTimeout(ctx, gatewayAskTimeout)
		defer cancel()
		region := s.status.collectRegionStatus(ctx, v, from)
		out.inFlight = countRegionInFlight(&region)
	}
	out.problem = findTargetProblem(v, g.To)
	if s.number != g.Number || out.problem == "" {
		s.number, s.problemSince = g.Number, now
	}
	out.problemIs = now.Sub(s.problemSince)
	return out
}

// countCellsOf returns how many cells DNS answers with a region, for any service.
func countCellsOf(v *nodeSnapshot, region int) (n int) {
	for i := range v.Spec.Services {
		for k := range v.Cells {
			if v.PickRegion(i, v.Cells[k].ID, netip.Addr{}, steer.RegionSet{}).Region == region {
				n++
			}
		}
	}
	return n
}

// countRegionInFlight returns the requests in flight at a region; -1 if it did not report them. A request is in flight
// both at its gateway and at its worker, so the larger count is used.
func countRegionInFlight(r *admin.RegionStatus) int64 {
	relayed, running := int64(0), int64(0)
	for i := range r.Gateways {
		relayed += r.Gateways[i].InFlight
	}
	for i := range r.Zones {
		for _, w := range r.Zones[i].Workers {
			running += w.InFlight
		}
	}
	if r.Note != "" {
		return -1
	}
	return max(relayed, running)
}

// findTargetProblem returns why a region cannot serve the clients that it has; empty: it can.
func findTargetProblem(v *nodeSnapshot, name string) string {
	r := v.RegionIndex(name)
	if r < 0 {
		return name + " is not in the spec"
	}
	x := &v.Regions[r]
	switch {
	case !x.HasReport():
		return name + " has not reported"
	case x.IsUnreachableByAll() || x.Group.State == capacity.Unreachable:
		return name + " is unreachable"
	case x.Drained || snapshot.IsRegionDrained(v.Drains, &v.Spec.Regions[r], v.WallTime()):
		return name + " is drained"
	}
	return strings.Join(findOverloads(v, r, -1), "; ")
}

// findOverloads returns the models of which a region has no ready worker or too little capacity for its demand. With
// from, the demand of that region is added, as far as the region serves the model.
func findOverloads(v *nodeSnapshot, to, from int) (out []string) {
	for i := range v.Spec.Models {
		name := v.Spec.Models[i].Name
		demand, _ := v.OfferedLoad(to, name)
		served := false
		if from >= 0 {
			moved, _ := v.OfferedLoad(from, name)
			demand += moved
			here := v.Regions[from].Group.Summary.FindModel(name)
			served = here != nil && here.Ready > 0
		}
		rate, ready := 0.0, int64(0)
		if sum := v.Regions[to].Group.Summary.FindModel(name); sum != nil {
			rate, ready = float64(sum.PrefillRate()), sum.Ready
		}
		region := v.Spec.Regions[to].Name
		switch {
		case (served || demand > 0) && ready == 0:
			out = append(out, fmt.Sprintf("%s has no ready worker for %s", region, name))
		case demand > rate:
			out = append(out, fmt.Sprintf("%s has %.0f tokens/s for %s and a demand of %.0f", region, rate, name, demand))
		}
		if len(out) == maxListedNames {
			break
		}
	}
	return out
}
