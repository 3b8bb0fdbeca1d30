// Package planinput prepares the planner's input: it bounds what regions report, smooths noisy figures, and marks the
// regions that plans treat with care.
//
// Reported demand, rates and waits fluctuate. A plan that follows the noise moves clients back and forth, so a Preparer
// uses smoothed values, and follows at once when a value leaves the range of chance. The wait that a region's own load
// explains is left out, because the price of capacity in a plan stands for it.
//
// The package is pure: the caller passes snapshots and the time, and solves.
package planinput

import (
	"math"
	"time"

	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
)

// MinPlanInterval is the minimum time between two plans, however many events arrive.
const MinPlanInterval = 100 * time.Millisecond

// Preparer prepares the planner's input and keeps what outlives one plan.
type Preparer struct {
	waits          map[regionModelKey]float64
	rates          smoothedValues[regionModelKey]
	demands        smoothedValues[flowKey]
	heavyHitters   heavyHitters
	explainedWaits explainedWaits
	smoothedAt     time.Time
	returnRamps    steer.ReturnRamps
	healthGuard    steer.RegionHealthGuard
	solverMemory   steer.SolverMemory
	bounds         *steer.ReportBounds // outlives a term: every node tracks the regions' capacity
}

type regionModelKey struct{ region, model string }

type flowKey struct{ service, model, cell string }

// NewPreparer returns a Preparer without history.
func NewPreparer() *Preparer { return &Preparer{bounds: new(steer.ReportBounds)} }

// NewForTerm returns a Preparer for another term of leadership: without history except for the bounds.
func (p *Preparer) NewForTerm() *Preparer { return &Preparer{bounds: p.bounds} }

// PrepareInput converts a snapshot to the planner's input and returns what the regions report beyond what plans count.
// pins is false while a node could not read a plan with pinned networks.
func (p *Preparer) PrepareInput(v *snapshot.SteeringSnapshot, pins bool, now time.Time) (*steer.PlanInput, []steer.Excess) {
	in := v.BuildPlanInput()
	if !pins {
		in.HeavyHitters = nil
	}
	in.Memory = &p.solverMemory
	excess := p.bounds.BoundInput(in, now)
	p.smoothWaits(v, in.Regions, now)
	p.smoothInput(v, in, now)
	p.healthGuard.MarkUnhealthy(in, now)
	p.returnRamps.MarkRamps(in, now)
	return in, excess
}

// ObserveReports records the regions' reports on a node that is not the leader, so that it has their history when it
// leads.
func (p *Preparer) ObserveReports(v *snapshot.SteeringSnapshot, now time.Time) {
	in := v.BuildPlanInput()
	in.HeavyHitters = nil
	p.bounds.ObserveReports(in, now)
}

// smoothInput replaces demand and rates by their smoothed values, and waits by the part that load does not explain.
func (p *Preparer) smoothInput(v *snapshot.SteeringSnapshot, in *steer.PlanInput, now time.Time) {
	p.smoothRates(v, in.Regions, now)
	for r := range in.Regions {
		for i := range in.Regions[r].Models {
			m := &in.Regions[r].Models[i]
			tokens, requests := v.OfferedLoad(r, m.Name)
			m.Wait = max(0, m.Wait-p.explainedWaits.updateWait(regionModelKey{v.Spec.Regions[r].Name, m.Name}, QueueingDelay(m, tokens, requests), now))
		}
	}
	p.explainedWaits.dropUnused(now)
	p.smoothDemand(v, in.Demand, now)
	in.HeavyHitters = p.heavyHitters.smoothRates(in.HeavyHitters, v.MeanRequestTokens(), now)
}

// smoothRates smooths each region's rate per worker, so that added and removed workers count at once.
func (p *Preparer) smoothRates(v *snapshot.SteeringSnapshot, regions []steer.RegionState, now time.Time) {
	seen := map[regionModelKey]bool{}
	for r := range regions {
		for i := range regions[r].Models {
			m := &regions[r].Models[i]
			if m.Ready <= 0 || m.Rate <= 0 {
				continue
			}
			key := regionModelKey{v.Spec.Regions[r].Name, m.Name}
			seen[key] = true
			m.Rate = m.Ready * p.rates.valueFor(key).updateValue(m.Rate/m.Ready, rateTolerance, now)
		}
	}
	p.rates.retainOnly(seen)
}

// smoothDemand smooths each cell's demand over all regions in which it arrives, so that a client that moves changes
// nothing.
func (p *Preparer) smoothDemand(v *snapshot.SteeringSnapshot, demand []steer.CellDemand, now time.Time) {
	rate, requests := map[flowKey]float64{}, map[flowKey]float64{}
	for i := range demand {
		d := &demand[i]
		rate[flowKey{service: d.Service, model: d.Model, cell: d.Cell}] += d.Rate
	}
	for r := range v.Regions {
		if !v.Regions[r].HasReport() || v.Regions[r].IsDead() {
			continue
		}
		for _, d := range v.Regions[r].Group.Summary.Demand {
			x := v.CellDemandFor(r, d.Service, d.Model, d.Cell, d.TokensPerSec)
			requests[flowKey{service: x.Service, model: x.Model, cell: x.Cell}] += float64(d.RequestsPerSecMilli) / 1000
		}
	}
	factor, seen := map[flowKey]float64{}, map[flowKey]bool{}
	for key, x := range rate {
		if x > 0 && requests[key] > 0 {
			// For independent requests of varying length, the variance of their tokens is about twice that of their
			// number.
			tolerance := noiseDeviations / math.Sqrt(demandRateWindow.Seconds()*requests[key])
			factor[key], seen[key] = p.demands.valueFor(key).updateValue(x, tolerance, now)/x, true
		}
	}
	p.demands.retainOnly(seen)
	for i := range demand {
		d := &demand[i]
		if f, ok := factor[flowKey{service: d.Service, model: d.Model, cell: d.Cell}]; ok {
			d.Rate *= f
		}
	}
}
