package global

import (
	"context"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// planner makes plans from Views. It belongs to the leader's goroutine.
type planner struct {
	s        *Server
	waits    map[waitKey]float64
	rates    steadies[waitKey]
	demands  steadies[demandKey]
	heavy    crowd
	backlogs backlogs
	last     time.Time
	back     steer.Returns
	guard    steer.Guard
	solved   steer.Memory
}

type waitKey struct{ region, model string }

// plan solves once and publishes what is worth it.
func (p *planner) plan(ctx context.Context, v *View) {
	if !v.settled(time.Since(p.s.started)) {
		return
	}
	if name := v.hearsay(); name != "" {
		p.s.metrics.plans.WithLabelValues("blind").Inc()
		p.s.log.Debug("no plan from here: a region that others hear has never spoken to this node", "region", name)
		return
	}
	if !v.quorum.muffled.Empty() {
		p.s.metrics.plans.WithLabelValues("blind").Inc()
		p.s.log.Debug("no plan from here: not every region has been heard again that fell silent together")
		return
	}
	in := p.input(v, time.Now())
	begun := time.Now()
	res := steer.Solve(in)
	p.s.metrics.solve.Observe(time.Since(begun).Seconds())
	if !res.Publish {
		p.s.metrics.plans.WithLabelValues(res.Reason).Inc()
		return
	}
	body, err := steer.Encode(res.Plan)
	if err == nil {
		_, err = p.s.node.PutPlan(ctx, v.state.PlanEpoch, body, consensus.By{Actor: p.s.cfg.Name, Reason: res.Reason}, costsOf(&res))
	}
	if err != nil {
		p.s.metrics.plans.WithLabelValues("refused").Inc()
		p.s.log.Warn("plan was not taken", "reason", res.Reason, telemetry.Err(err))
		return
	}
	p.s.metrics.plans.WithLabelValues(res.Reason).Inc()
	p.s.log.Debug("plan published", "reason", res.Reason, "cost", res.Cost, "previous", res.PrevCost)
}

// settled is false while a node has not been up for long enough to take silence for loss.
func (v *View) settled(up time.Duration) bool {
	if up > grace {
		return true
	}
	for r := range v.regions {
		if !v.regions[r].heard {
			return false
		}
	}
	return true
}

// hearsay is a region whose capacity this node has never been told while others hear it: a plan made without it would
// send its clients away. Empty when there is none.
func (v *View) hearsay() string {
	for r := range v.regions {
		if x := &v.regions[r]; !x.heard && x.unheard && !x.dead && len(x.heardBy) > 0 {
			return v.spec.Regions[r].Name
		}
	}
	return ""
}

func (p *planner) input(v *View, now time.Time) *steer.Input {
	in := v.input()
	if q := v.quorum; !p.s.bench.reads(steer.PlanVersion, q.self, q.voters) {
		in.Heavy = nil // a node of the release before could not read the plan
	}
	in.Memory = &p.solved
	p.smooth(v, in.Regions, now)
	p.calm(v, in, now)
	p.guard.Mark(in, now)
	p.back.Mark(in, now)
	return in
}

// input is what the View knows, in the planner's terms.
func (v *View) input() *steer.Input {
	in := &steer.Input{Spec: v.spec, SpecVersion: v.version, Prev: v.plan, Heavy: v.heavies()}
	seen := map[string]bool{}
	for r := range v.regions {
		in.Regions = append(in.Regions, v.capacityOf(r))
		if !v.regions[r].heard || v.regions[r].dead {
			continue
		}
		for _, d := range v.regions[r].group.Summary.Demand {
			in.Demand = append(in.Demand, v.demandOf(r, d.Service, d.Model, d.Cell, d.TokensPerSec))
			if cell := geo.CellNamed(d.Cell); cell != geo.NoCell && !seen[d.Cell] {
				seen[d.Cell] = true
				if rtt := v.geo.Row(cell); rtt != nil {
					in.Cells = append(in.Cells, steer.Cell{Name: d.Cell, RTT: rtt})
				}
			}
		}
	}
	return in
}

func (v *View) capacityOf(region int) steer.Region {
	r := &v.regions[region]
	out := steer.Region{Drained: r.drained, Lost: r.dead}
	if !r.heard || r.dead { // one that only some nodes have lost keeps its last capacity
		return out
	}
	for i := range r.group.Summary.Models {
		m := &r.group.Summary.Models[i]
		x := steer.Model{Name: m.Name, Ready: float64(m.Ready), Warm: float64(m.Warm), Cold: float64(m.Cold), Wake: float64(m.WarmMillis) / 1000, Total: float64(m.Total)}
		if wait, ok := m.Wait(spec.Standard); ok { // else nobody is ready, whatever rates were learned
			x.Rate, x.Wait, x.Warmth = float64(m.PrefillRate()), wait.Seconds(), v.warmth(m)
		}
		out.Models = append(out.Models, x)
	}
	return out
}

// demandOf names the service as the spec does: clients arrive under the service's name or under a region's child of it.
func (v *View) demandOf(region int, service, model, cell string, rate int64) steer.Demand {
	if i := v.service(service); i >= 0 {
		service = v.spec.Services[i].Name
	}
	return steer.Demand{
		Service: service, Model: model, Cell: cell, Region: v.spec.Regions[region].Name, Rate: float64(rate),
	}
}
