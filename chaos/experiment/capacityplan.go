package experiment

import (
	"context"
	"fmt"
	"slices"

	"github.com/spillway-lb/spillway/chaos/sim"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

// CapacityPlan is the number of workers that a demand needs.
type CapacityPlan struct {
	Model    string        `json:"model"`
	Workload string        `json:"workload"`
	Goals    []string      `json:"goals"`
	Zones    []ZoneWorkers `json:"zones"`
	// Apart is the total if each region serves its own clients, Shared if regions spill to each other.
	Apart  FleetTotal `json:"apart"`
	Shared FleetTotal `json:"shared"`
	// Findings describe the result in sentences.
	Findings []string `json:"findings"`
}

// ZoneWorkers is the workers of one zone.
type ZoneWorkers struct {
	Region string `json:"region"`
	Zone   string `json:"zone"`
	GPU    string `json:"gpu"` // of one worker, such as H100x2
	Apart  int    `json:"workers_apart"`
	Shared int    `json:"workers_shared"`
}

// FleetTotal is the total of a fleet.
type FleetTotal struct {
	Workers int     `json:"workers"`
	Dollars float64 `json:"dollars_per_hour"`
	// Figures are the goals' figures, over all clients.
	Figures map[string]float64 `json:"figures_s"`
}

// summarizePlan fills in the rows, the totals and the findings.
func (p *capacityPlanner) summarizePlan(ctx context.Context, out *CapacityPlan, apart, shared []int) error {
	for i := range p.demand.Sites {
		s := &p.demand.Sites[i]
		a, b := spreadEvenly(apart[i], len(s.Zones)), spreadEvenly(shared[i], len(s.Zones))
		for k, z := range s.Zones {
			out.Zones = append(out.Zones, ZoneWorkers{Region: s.Name, Zone: z, GPU: gpuName(p.profiles[i].GPU, p.profiles[i].TP), Apart: a[k], Shared: b[k]})
		}
		out.Apart.Workers += apart[i]
		out.Shared.Workers += shared[i]
		out.Apart.Dollars += float64(apart[i]) * p.workerDollars(i)
		out.Shared.Dollars += float64(shared[i]) * p.workerDollars(i)
		r, _, err := p.tryFleet(ctx, apart, i)
		if err != nil {
			return err
		}
		p.addFigures(&out.Apart, r)
	}
	if len(p.demand.Sites) == 1 {
		out.Shared.Figures = out.Apart.Figures
		out.Findings = append(out.Findings, "There is one region, so there is no spilling.")
		return nil
	}
	r, _, err := p.tryFleet(ctx, shared, -1)
	if err != nil {
		return err
	}
	p.addFigures(&out.Shared, r)
	out.addFindings(shared)
	return nil
}

// addFindings describes what spilling saves.
func (out *CapacityPlan) addFindings(shared []int) {
	if saved := out.Apart.Workers - out.Shared.Workers; saved == 0 {
		out.Findings = append(out.Findings, "Spilling between regions saves no worker: they are busy at the same time, or too far from each other for the goal.")
	} else {
		out.Findings = append(out.Findings, fmt.Sprintf("Spilling between regions saves %d of %d workers, $%.2f an hour (%.0f %%).",
			saved, out.Apart.Workers, out.Apart.Dollars-out.Shared.Dollars, 100*ratioOrZero(out.Apart.Dollars-out.Shared.Dollars, out.Apart.Dollars)))
	}
	if slices.Min(shared) == 1 {
		out.Findings = append(out.Findings, "A region with one worker has nothing left when that one fails: plan for two where it matters.")
	}
}

// addFigures records the figures of the worst region.
func (p *capacityPlanner) addFigures(t *FleetTotal, r *sim.RunResult) {
	for _, g := range p.demand.Goals {
		m, _ := findMetric(g.Figure)
		if v, why := m.ofRun(r); why == "" {
			t.Figures[g.Figure] = max(t.Figures[g.Figure], v)
		}
	}
}

// workerDollars is the cost of one worker of a site per hour.
func (p *capacityPlanner) workerDollars(site int) float64 {
	q := &p.profiles[site]
	if d := p.demand.Sites[site].Dollars; d > 0 {
		return d * float64(q.TP)
	}
	return float64(perfmodel.EstimatePrior(gpuName(q.GPU, q.TP), q.Model).CostMicros) / 1e6
}
