package global

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

// checkDrained refuses to put a drain in place of one that is in force, unless that is asked for. It reads what is agreed
// now, so that a drain of a moment ago at another node is not overlooked.
func (s *Server) checkDrained(ctx context.Context, r admin.DrainRequest) error {
	if r.Replace {
		return nil
	}
	st, err := s.node.Read(ctx)
	if err != nil {
		return refusal(err)
	}
	return admin.CheckDrained(drainList(st.Drains), r, time.Now())
}

// endOrphans ends drains of regions and zones that the spec does not have any more.
func (s *Server) endOrphans(ctx context.Context, st *consensus.State) {
	v := s.view.Load()
	if v == nil || len(st.Drains) == 0 || !v.current(st) {
		return
	}
	for _, d := range orphans(v.spec, st.Drains) {
		s.within(ctx, "ending a drain of what the spec does not have", func(ctx context.Context) error {
			err := s.node.DeleteDrain(ctx, d.Path, consensus.By{Actor: s.cfg.Name, Reason: fmt.Sprintf("not in spec %d", v.version)})
			if err == nil {
				s.log.Info("drain ended: the spec does not have its region or zone any more", "path", d.Path, "spec", v.version)
			}
			return err
		})
	}
}

// orphans are the drains whose region or zone the spec does not have.
func orphans(s *spec.Spec, drains []consensus.Drain) (out []consensus.Drain) {
	for _, d := range drains {
		if s.CheckDrain(d.Path) != nil {
			out = append(out, d)
		}
	}
	return out
}

// drainImpact is what a drain leaves. below is what the region says of its zones and workers; nil: it was not asked, or
// did not say.
func (v *View) drainImpact(path string, below *admin.RegionStatus) *admin.DrainImpact {
	region, zone, worker, _ := spec.ParseDrain(path)
	target := v.region(region)
	out := &admin.DrainImpact{Models: []admin.DrainModel{}}
	after := append(slices.Clone(v.state.Drains), consensus.Drain{Path: path})
	for r := range v.regions {
		if x := &v.regions[r]; !x.drained && !x.gone {
			out.Regions++
			if !regionDrained(after, &v.spec.Regions[r], v.made) {
				out.RegionsLeft++
			}
		}
	}
	if decl := &v.spec.Regions[target]; zone != "" {
		for _, z := range decl.Zones {
			if !drainedAt(v.state.Drains, decl.Name+"/"+z, v.made) {
				out.Zones++
				if worker != "" || z != zone {
					out.ZonesLeft++
				}
			}
		}
	}
	v.impactOnModels(out, target, !regionDrained(after, &v.spec.Regions[target], v.made), zone, worker, below)
	v.judgeImpact(out, zone, worker)
	return out
}

// impactOnModels sums up each model over the regions that take clients. stays says that the target still takes some.
func (v *View) impactOnModels(out *admin.DrainImpact, target int, stays bool, zone, worker string, below *admin.RegionStatus) {
	for i := range v.spec.Models {
		m := admin.DrainModel{Name: v.spec.Models[i].Name}
		requests := 0.0
		for r := range v.regions {
			x := &v.regions[r]
			if !x.heard || x.gone {
				continue
			}
			tokens, n := v.offered(r, m.Name)
			m.Demand, requests = m.Demand+tokens, requests+n
			sum := x.group.Summary.Model(m.Name)
			if sum == nil || x.drained {
				continue
			}
			workers, rate := sum.Ready, float64(sum.PrefillRate())
			m.Workers, m.Rate = m.Workers+workers, m.Rate+rate
			if r == target {
				left := int64(0)
				if stays {
					left = max(0, workers-leaving(below, m.Name, zone, worker))
				}
				rate *= float64(left) / float64(max(workers, 1))
				workers = left
			}
			m.WorkersLeft, m.RateLeft = m.WorkersLeft+workers, m.RateLeft+rate
		}
		if m.Workers == 0 && m.Demand == 0 {
			continue
		}
		m.WaitSeconds = poolWait(m.Rate, m.Workers, m.Demand, requests)
		m.WaitLeftSeconds = poolWait(m.RateLeft, m.WorkersLeft, m.Demand, requests)
		out.Models = append(out.Models, m)
	}
}

// leaving is how many ready workers for a model a zone has, or whether a worker is one of them.
func leaving(below *admin.RegionStatus, model, zone, worker string) (n int64) {
	if below == nil {
		return 0
	}
	for i := range below.Zones {
		z := &below.Zones[i]
		if z.Name != zone || z.Draining {
			continue
		}
		if worker == "" {
			for k := range z.Models {
				if z.Models[k].Name == model {
					n += z.Models[k].Ready
				}
			}
			continue
		}
		for k := range z.Workers {
			if w := &z.Workers[k]; w.Name == worker && w.State == "ready" && slices.Contains(w.Models, model) {
				return 1
			}
		}
	}
	return n
}

// poolWait is the wait of one queue before all the workers, in seconds; -1 where demand exceeds what they do.
func poolWait(rate float64, workers int64, tokens, requests float64) float64 {
	switch {
	case tokens <= 0:
		return 0
	case rate <= tokens || workers == 0:
		return -1
	}
	return queueing(&steer.Model{Rate: rate, Ready: float64(workers)}, tokens, requests)
}

// judgeImpact notes which minimum of the spec is not kept. A minimum that was not kept before stops no drain that takes
// nothing more away.
func (v *View) judgeImpact(out *admin.DrainImpact, zone, worker string) {
	st := &v.spec.Steering
	if least := valueOr(st.DrainMinRegions, 1); out.RegionsLeft < least && out.RegionsLeft < out.Regions {
		out.Below = append(out.Below, fmt.Sprintf("%d of %d regions would be left, and steering.drain_min_regions is %d", out.RegionsLeft, out.Regions, least))
	}
	if least := valueOr(st.DrainMinZones, 1); zone != "" && worker == "" && out.ZonesLeft < least && out.ZonesLeft < out.Zones {
		out.Below = append(out.Below, fmt.Sprintf("%d of %d zones would be left in the region, and steering.drain_min_zones is %d", out.ZonesLeft, out.Zones, least))
	}
	least := valueOr(st.DrainMinCapacity, 0.25)
	var short []string
	for i := range out.Models {
		m := &out.Models[i]
		whole := math.Max(m.Rate, v.rateOfAll(m.Name))
		if m.RateLeft < m.Rate && m.RateLeft < least*whole*(1-1e-9) {
			short = append(short, fmt.Sprintf("%s %.0f %%", m.Name, 100*m.RateLeft/whole))
		}
	}
	if len(short) > 0 {
		out.Below = append(out.Below, fmt.Sprintf("of the capacity for %s would be left, and steering.drain_min_capacity is %g", strings.Join(short[:min(len(short), maxListed)], ", "), least))
	}
}

// rateOfAll is what all regions that are heard have of a model, drained ones included, in tokens/s.
func (v *View) rateOfAll(model string) (sum float64) {
	for r := range v.regions {
		if x := &v.regions[r]; x.heard && !x.gone {
			if m := x.group.Summary.Model(model); m != nil {
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
