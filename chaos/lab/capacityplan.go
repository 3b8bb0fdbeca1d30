package lab

import (
	"context"
	"fmt"
	"slices"

	"github.com/spillway-lb/spillway/chaos/sim"
	"github.com/spillway-lb/spillway/local/pick"
)

// CapacityPlan is how many workers a demand needs.
type CapacityPlan struct {
	Model    string   `json:"model"`
	Workload string   `json:"workload"`
	Goals    []string `json:"goals"`
	Rows     []Need   `json:"zones"`
	// Apart is the whole where each region serves its own clients, Shared where regions spill to each other.
	Apart  Total `json:"apart"`
	Shared Total `json:"shared"`
	// Finds say it in words.
	Finds []string `json:"findings"`
}

// Need is one zone's.
type Need struct {
	Region string `json:"region"`
	Zone   string `json:"zone"`
	GPU    string `json:"gpu"` // of one worker, such as H100x2
	Apart  int    `json:"workers_apart"`
	Shared int    `json:"workers_shared"`
}

// Total of a fleet.
type Total struct {
	Workers int     `json:"workers"`
	Dollars float64 `json:"dollars_per_hour"`
	// Figures are the goals' figures, of all clients together.
	Figures map[string]float64 `json:"figures_s"`
}

// sum makes the rows, the totals and the words.
func (p *provision) sum(ctx context.Context, out *CapacityPlan, apart, shared []int) error {
	for i := range p.d.Sites {
		s := &p.d.Sites[i]
		a, b := evenly(apart[i], len(s.Zones)), evenly(shared[i], len(s.Zones))
		for k, z := range s.Zones {
			out.Rows = append(out.Rows, Need{Region: s.Name, Zone: z, GPU: gpuName(p.profile[i].GPU, p.profile[i].TP), Apart: a[k], Shared: b[k]})
		}
		out.Apart.Workers += apart[i]
		out.Shared.Workers += shared[i]
		out.Apart.Dollars += float64(apart[i]) * p.dollars(i)
		out.Shared.Dollars += float64(shared[i]) * p.dollars(i)
		r, _, err := p.try(ctx, apart, i)
		if err != nil {
			return err
		}
		p.figures(&out.Apart, r)
	}
	if len(p.d.Sites) == 1 {
		out.Shared.Figures = out.Apart.Figures
		out.Finds = append(out.Finds, "There is one region: nobody to spill to.")
		return nil
	}
	r, _, err := p.try(ctx, shared, -1)
	if err != nil {
		return err
	}
	p.figures(&out.Shared, r)
	out.find(shared)
	return nil
}

// find says in words what spilling saves, and what it cannot.
func (out *CapacityPlan) find(shared []int) {
	if saved := out.Apart.Workers - out.Shared.Workers; saved == 0 {
		out.Finds = append(out.Finds, "Spilling between regions saves no worker: they are busy at the same time, or too far from each other for the goal.")
	} else {
		out.Finds = append(out.Finds, fmt.Sprintf("Spilling between regions saves %d of %d workers, $%.2f an hour (%.0f %%).",
			saved, out.Apart.Workers, out.Apart.Dollars-out.Shared.Dollars, 100*ratio(out.Apart.Dollars-out.Shared.Dollars, out.Apart.Dollars)))
	}
	if slices.Min(shared) == 1 {
		out.Finds = append(out.Finds, "A region with one worker has nothing left when that one fails: plan for two where it matters.")
	}
}

// figures notes the worst region's.
func (p *provision) figures(t *Total, r *sim.Result) {
	for _, g := range p.d.Goals {
		m, _ := findMetric(g.Figure)
		if v, why := m.of(r); why == "" {
			t.Figures[g.Figure] = max(t.Figures[g.Figure], v)
		}
	}
}

// dollars of one worker of a site for an hour.
func (p *provision) dollars(site int) float64 {
	q := &p.profile[site]
	if d := p.d.Sites[site].Dollars; d > 0 {
		return d * float64(q.TP)
	}
	return float64(pick.PriorFor(gpuName(q.GPU, q.TP), q.Model).CostMicros) / 1e6
}
