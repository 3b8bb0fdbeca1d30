package global

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/planinput"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

// endOrphanDrains ends drains of regions and zones that are no longer in the spec.
func (s *leaderLoop) endOrphanDrains(ctx context.Context, st *consensus.State) {
	v := s.snapshot.Load()
	if v == nil {
		return
	}
	for _, d := range findOrphanDrains(v, st) {
		s.runDuty(ctx, "ending a drain of a path that is not in the spec", func(ctx context.Context) error {
			err := s.node.DeleteDrain(ctx, d.Path, consensus.Attribution{Actor: s.name, Reason: fmt.Sprintf("not in spec %d", v.Version)})
			if err == nil {
				s.log.Info("drain ended: its region or zone is no longer in the spec", "path", d.Path, "spec", v.Version)
			}
			return err
		})
	}
}

// findOrphanDrains returns the drains whose region or zone is not in the spec. It returns none while the snapshot is
// older than the state, because a newer spec may have what the snapshot's spec lacks.
func findOrphanDrains(v *nodeSnapshot, st *consensus.State) (out []consensus.Drain) {
	if !v.isCurrent(st) {
		return nil
	}
	for _, d := range st.Drains {
		if v.Spec.CheckDrain(d.Path) != nil {
			out = append(out, d)
		}
	}
	return out
}

// withoutRamps returns a copy of drains without their ramps: each takes full effect at once.
func withoutRamps(drains []snapshot.PathDrain) []snapshot.PathDrain {
	out := slices.Clone(drains)
	for i := range out {
		out[i].Over = 0
	}
	return out
}

// toPathDrains converts agreed drains.
func toPathDrains(drains []consensus.Drain) []snapshot.PathDrain {
	if len(drains) == 0 {
		return nil
	}
	out := make([]snapshot.PathDrain, len(drains))
	for i := range drains {
		d := &drains[i]
		out[i] = snapshot.PathDrain{Path: d.Path, Until: d.Until, At: d.At, Over: d.Over}
	}
	return out
}

// computeDrainImpact returns what a drain leaves in addition to those in drains; all count as complete. below is the
// region's report on its zones and workers; nil: not requested, or no answer.
func computeDrainImpact(v *nodeSnapshot, drains []consensus.Drain, path string, below *admin.RegionStatus) *admin.DrainImpact {
	region, zone, worker, _ := spec.ParseDrain(path)
	target := v.RegionIndex(region)
	out := &admin.DrainImpact{Models: []admin.DrainModel{}}
	before := withoutRamps(toPathDrains(drains))
	after := append(slices.Clone(before), snapshot.PathDrain{Path: path})
	for r := range v.Regions {
		if x := &v.Regions[r]; !x.Drained && !x.IsUnreachableByAll() && !snapshot.IsRegionDrained(before, &v.Spec.Regions[r], v.WallTime()) {
			out.Regions++
			if !snapshot.IsRegionDrained(after, &v.Spec.Regions[r], v.WallTime()) {
				out.RegionsLeft++
			}
		}
	}
	if decl := &v.Spec.Regions[target]; zone != "" {
		for _, z := range decl.Zones {
			if !snapshot.IsDrained(before, decl.Name+"/"+z, v.WallTime()) {
				out.Zones++
				if worker != "" || z != zone {
					out.ZonesLeft++
				}
			}
		}
	}
	addModelImpacts(v, out, before, after, target, below)
	checkDrainMinimums(v, out, zone, worker)
	return out
}

// addModelImpacts sums up each model over the regions that receive clients, before and after the drain.
func addModelImpacts(v *nodeSnapshot, out *admin.DrainImpact, before, after []snapshot.PathDrain, target int, below *admin.RegionStatus) {
	stays := !snapshot.IsRegionDrained(after, &v.Spec.Regions[target], v.WallTime())
	for i := range v.Spec.Models {
		m := admin.DrainModel{Name: v.Spec.Models[i].Name}
		requests := 0.0
		for r := range v.Regions {
			x := &v.Regions[r]
			if !x.HasReport() || x.IsUnreachableByAll() {
				continue
			}
			tokens, n := v.OfferedLoad(r, m.Name)
			m.Demand, requests = m.Demand+tokens, requests+n
			sum := x.Group.Summary.FindModel(m.Name)
			if sum == nil || x.Drained || snapshot.IsRegionDrained(before, &v.Spec.Regions[r], v.WallTime()) {
				continue
			}
			workers, rate := sum.Ready, float64(sum.PrefillRate())
			if r == target {
				now := max(0, workers-countLeavingWorkers(below, before, m.Name, v.WallTime()))
				rate *= float64(now) / float64(max(workers, 1))
				workers = now
			}
			m.Workers, m.Rate = m.Workers+workers, m.Rate+rate
			if r == target {
				left := int64(0)
				if stays {
					left = max(0, sum.Ready-countLeavingWorkers(below, after, m.Name, v.WallTime()))
				}
				rate *= float64(left) / float64(max(workers, 1))
				workers = left
			}
			m.WorkersLeft, m.RateLeft = m.WorkersLeft+workers, m.RateLeft+rate
		}
		if m.Workers == 0 && m.Demand == 0 {
			continue
		}
		m.WaitSeconds = estimateSharedWait(m.Rate, m.Workers, m.Demand, requests)
		m.WaitLeftSeconds = estimateSharedWait(m.RateLeft, m.WorkersLeft, m.Demand, requests)
		out.Models = append(out.Models, m)
	}
}

// countLeavingWorkers returns how many ready workers of a model a region loses once its drains are complete. Zones
// that report their drain are already excluded from the region's ready workers.
func countLeavingWorkers(below *admin.RegionStatus, drains []snapshot.PathDrain, model string, now time.Time) (n int64) {
	if below == nil {
		return 0
	}
	for i := range below.Zones {
		z := &below.Zones[i]
		path := below.Name + "/" + z.Name
		switch {
		case z.Draining:
		case snapshot.IsDrained(drains, path, now):
			for k := range z.Models {
				if z.Models[k].Name == model {
					n += z.Models[k].Ready
				}
			}
		default:
			for k := range z.Workers {
				if w := &z.Workers[k]; w.State == "ready" && slices.Contains(w.Models, model) && snapshot.IsDrained(drains, path+"/"+w.Name, now) {
					n++
				}
			}
		}
	}
	return n
}

// estimateSharedWait returns the wait in one queue shared by all workers, in seconds; -1 if demand exceeds their
// rate.
func estimateSharedWait(rate float64, workers int64, tokens, requests float64) float64 {
	switch {
	case tokens <= 0:
		return 0
	case rate <= tokens || workers == 0:
		return -1
	}
	return planinput.QueueingDelay(&steer.ModelCapacity{Rate: rate, Ready: float64(workers)}, tokens, requests)
}

// checkDrainMinimums records which minimum of the spec is violated. A minimum that was already violated does not
// block a drain that takes nothing more away.
func checkDrainMinimums(v *nodeSnapshot, out *admin.DrainImpact, zone, worker string) {
	st := &v.Spec.Steering
	if least := valueOr(st.DrainMinRegions, 1); out.RegionsLeft < least && out.RegionsLeft < out.Regions {
		out.Below = append(out.Below, fmt.Sprintf("%d of %d regions would remain, fewer than steering.drain_min_regions (%d)", out.RegionsLeft, out.Regions, least))
	}
	if least := valueOr(st.DrainMinZones, 1); zone != "" && worker == "" && out.ZonesLeft < least && out.ZonesLeft < out.Zones {
		out.Below = append(out.Below, fmt.Sprintf("%d of %d zones would remain in the region, fewer than steering.drain_min_zones (%d)", out.ZonesLeft, out.Zones, least))
	}
	least := valueOr(st.DrainMinCapacity, 0.25)
	var short []string
	for i := range out.Models {
		m := &out.Models[i]
		whole := math.Max(m.Rate, totalModelRate(v, m.Name))
		if m.RateLeft < m.Rate && m.RateLeft < least*whole*(1-1e-9) {
			short = append(short, fmt.Sprintf("%.0f %% for %s", 100*m.RateLeft/whole, m.Name))
		}
	}
	if len(short) > 0 {
		out.Below = append(out.Below, fmt.Sprintf("the capacity that would remain is less than steering.drain_min_capacity (%g): %s", least, strings.Join(short[:min(len(short), maxListedNames)], ", ")))
	}
}

// totalModelRate returns the rate of a model over all reporting regions, including drained ones, in tokens/s.
func totalModelRate(v *nodeSnapshot, model string) (sum float64) {
	for r := range v.Regions {
		if x := &v.Regions[r]; x.HasReport() && !x.IsUnreachableByAll() {
			if m := x.Group.Summary.FindModel(model); m != nil {
				sum += float64(m.PrefillRate())
			}
		}
	}
	return sum
}

func valueOr[T any](p *T, def T) T {
	if p == nil {
		return def
	}
	return *p
}
