package global

import (
	"context"
	"slices"
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
	node     planNode
	waits    map[waitKey]float64
	rates    steadies[waitKey]
	demands  steadies[demandKey]
	heavy    crowd
	backlogs backlogs
	last     time.Time
	back     steer.Returns
	guard    steer.Guard
	solved   steer.Memory
	bounds   *steer.Bounds // outlives the planner: every node watches what regions have
	excess   excessLog
}

type waitKey struct{ region, model string }

// planNode is the part of a consensus node that planning uses.
type planNode interface {
	State() *consensus.State
	PutPlan(ctx context.Context, prev uint64, body []byte, by consensus.By, detail string) (uint64, error)
}

// plan solves once and publishes what is worth it.
func (p *planner) plan(ctx context.Context, v *View, now time.Time) {
	if !v.current(p.node.State()) {
		poke(p.s.replan) // the keeper is about to catch up: a whole interval later would be late
		return
	}
	if !v.settled(now.Sub(p.s.started)) {
		return
	}
	if p.blocked(v, now) {
		p.s.metrics.plans.WithLabelValues("blind").Inc()
		return
	}
	in := p.input(v, now)
	begun := time.Now()
	res := steer.Solve(in)
	p.s.metrics.solve.Observe(time.Since(begun).Seconds())
	if !res.Publish {
		p.s.metrics.plans.WithLabelValues(res.Reason).Inc()
		return
	}
	body, err := steer.Encode(res.Plan)
	if err == nil {
		_, err = p.node.PutPlan(ctx, v.state.PlanEpoch, body, consensus.By{Actor: p.s.cfg.Name, Reason: res.Reason}, costsOf(&res))
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
// send its clients away. Empty when there is none. single marks one that only one other node hears and that the plan in
// force does without: it has no clients to lose, and the other node may be wrong.
func (v *View) hearsay() (region string, single bool) {
	for r := range v.regions {
		x := &v.regions[r]
		if x.heard || !x.unheard || x.dead || len(x.heardBy) == 0 {
			continue
		}
		region = v.spec.Regions[r].Name
		if single = len(x.heardBy) == 1 && v.plan != nil && slices.Contains(v.plan.Without, region); !single {
			return region, false
		}
	}
	return region, single
}

func (p *planner) input(v *View, now time.Time) *steer.Input {
	in := v.input()
	if q := v.quorum; !p.s.bench.reads(steer.PlanVersion, q.self, q.voters) {
		in.Heavy = nil // a node of the release before could not read the plan
	}
	in.Memory = &p.solved
	p.bound(in, now)
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
		for _, h := range m.Hardware {
			x.Hardware = append(x.Hardware, steer.Hardware{Name: h.Name, Ready: float64(h.Ready), Rate: float64(h.PrefillRate)})
		}
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
