package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/chaos/sim"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

const (
	defaultMaxWorkers = 512
	// idleBusyShare is the busy share below which more workers change nothing.
	idleBusyShare = 0.1
)

// capacityPlanner is a running plan.
type capacityPlanner struct {
	demand   *PlanDemand
	profiles []gpu.WorkerProfile // by site
	stage    int
	tries    int
}

// PlanCapacity finds the fewest workers that meet the goals, by simulating more and fewer of them: for each region by
// itself, and for all of them together with spilling. The error states why no number of workers meets the goals.
func PlanCapacity(ctx context.Context, d PlanDemand) (*CapacityPlan, error) {
	p := &capacityPlanner{demand: &d}
	if err := p.checkDemand(); err != nil {
		return nil, err
	}
	apart := make([]int, len(d.Sites))
	out := &CapacityPlan{Model: p.profiles[0].Model, Apart: FleetTotal{Figures: map[string]float64{}}, Shared: FleetTotal{Figures: map[string]float64{}}}
	for _, g := range d.Goals {
		out.Goals = append(out.Goals, g.Figure+" within "+g.Within.String())
	}
	c := Case{Workload: &d.Workload}
	out.Workload = c.describeWorkload()
	for i := range d.Sites {
		n, err := p.planRegion(ctx, i)
		if err != nil {
			return nil, err
		}
		apart[i] = n
		p.stage++
	}
	shared := slices.Clone(apart)
	if len(d.Sites) > 1 {
		var err error
		if shared, err = p.planShared(ctx, apart); err != nil {
			return nil, err
		}
	}
	if err := p.summarizePlan(ctx, out, apart, shared); err != nil {
		return nil, err
	}
	return out, nil
}

func (p *capacityPlanner) checkDemand() error {
	d := p.demand
	switch {
	case len(d.Sites) == 0:
		return errors.New("there is no region to plan for: declare one under regions")
	case len(d.Goals) == 0:
		return errors.New("there is no goal: write --slo ttft_p99=2s")
	case d.Duration <= 0 || d.WarmUp < 0 || d.WarmUp >= d.Duration:
		return fmt.Errorf("%v of arrivals with a warm-up of %v leave nothing to measure: use a longer time (--for), or a shorter warm-up (--warm-up)", d.Duration, d.WarmUp)
	}
	if d.MaxWorkers <= 0 {
		d.MaxWorkers = defaultMaxWorkers
	}
	slo := p.goalsAsSLO()
	for i := range d.Sites {
		s := &d.Sites[i]
		profile, err := gpu.LookupProfile(s.GPU, d.Model, s.TP)
		if err != nil {
			return fmt.Errorf("region %s: %w", s.Name, err)
		}
		p.profiles = append(p.profiles, profile)
		if len(s.Zones) == 0 {
			s.Zones = []string{"a"}
		}
		if why := findUnreachableGoals([]WorkerGroup{{GPU: s.GPU, Model: d.Model, TP: s.TP, Slowdown: 1}}, &slo); len(why) > 0 {
			return fmt.Errorf("region %s: %s\nhint: %s", s.Name, why[0].reason, why[0].hint)
		}
		d.Workload.Regions = append(d.Workload.Regions, load.ClientRegion{Name: s.Name, Share: s.Share, Shift: localTimeOffset(s.Lon)})
	}
	return nil
}

// localTimeOffset is the solar time offset of a longitude from Greenwich.
func localTimeOffset(lon float64) time.Duration {
	h := math.Round(lon / 15)
	if h < 0 {
		h += 24
	}
	return time.Duration(h) * time.Hour
}

// goalsAsSLO are the goals as an SLO, for the description of why they are missed.
func (p *capacityPlanner) goalsAsSLO() (s SLO) {
	for _, g := range p.demand.Goals {
		switch what, _, _ := strings.Cut(g.Figure, "_"); what {
		case "ttft":
			s.TTFT = g.Within
		case "tpot":
			s.TPOT = g.Within
		case "e2e":
			s.E2E = g.Within
		}
	}
	return s
}

// planRegion finds the fewest workers of one region by itself.
func (p *capacityPlanner) planRegion(ctx context.Context, site int) (int, error) {
	counts := make([]int, len(p.demand.Sites))
	low, high := 0, 1 // low does not suffice
	for {
		counts[site] = high
		r, ok, err := p.tryFleet(ctx, counts, site)
		if err != nil {
			return 0, err
		}
		if ok {
			break
		}
		slo := p.goalsAsSLO()
		if meanBusyShare(r) < idleBusyShare || high >= p.demand.MaxWorkers {
			return 0, fmt.Errorf("no number of workers helps in %s: with %d of %s, %s\nhint: use a faster GPU or more of them as one (--gpu %s=TYPExN), a longer goal, or shorter prompts (--max-prompt)",
				p.demand.Sites[site].Name, high, gpuName(p.profiles[site].GPU, p.profiles[site].TP), p.explainMissedGoals(r, &slo), p.demand.Sites[site].Name)
		}
		low, high = high, min(2*high, p.demand.MaxWorkers)
	}
	for high-low > 1 {
		middle := (low + high) / 2
		counts[site] = middle
		_, ok, err := p.tryFleet(ctx, counts, site)
		if err != nil {
			return 0, err
		}
		if ok {
			high = middle
		} else {
			low = middle
		}
	}
	return high, nil
}

// explainMissedGoals describes why a run misses its goals.
func (p *capacityPlanner) explainMissedGoals(r *sim.RunResult, slo *SLO) string {
	if s := explainMissedSLO(r, slo, 1); s != "" {
		return s
	}
	for _, g := range p.demand.Goals {
		m, _ := findMetric(g.Figure)
		if v, why := m.ofRun(r); why != "" {
			return why
		} else if v > g.Within.Seconds() {
			return fmt.Sprintf("%s is %s", g.Figure, FormatFigure(v, "s"))
		}
	}
	return "some of the clients of one region are not served in time"
}

// planShared finds fewer workers for regions that spill to each other: first the same fraction of each region's own
// need, then single workers less.
func (p *capacityPlanner) planShared(ctx context.Context, apart []int) ([]int, error) {
	at := func(part float64) []int {
		out := make([]int, len(apart))
		for i, n := range apart {
			out[i] = max(int(math.Ceil(part*float64(n)-1e-9)), 1)
		}
		return out
	}
	best, low, high := slices.Clone(apart), 0.0, 1.0
	most := slices.Max(apart)
	for high-low > 0.5/float64(most) {
		middle := (low + high) / 2
		counts := at(middle)
		_, ok, err := p.tryFleet(ctx, counts, -1)
		if err != nil {
			return nil, err
		}
		if ok {
			best, high = counts, middle
		} else {
			low = middle
		}
	}
	for progress := true; progress; {
		progress = false
		for i := range best {
			if best[i] <= 1 {
				continue
			}
			best[i]--
			_, ok, err := p.tryFleet(ctx, best, -1)
			if err != nil {
				return nil, err
			}
			if !ok {
				best[i]++
			}
			progress = progress || ok
		}
	}
	return best, nil
}

// tryFleet simulates a fleet and reports whether the goals are met: for the clients of one region that is by itself,
// or for those of each.
func (p *capacityPlanner) tryFleet(ctx context.Context, counts []int, alone int) (*sim.RunResult, bool, error) {
	d := p.demand
	w := d.Workload
	w.Seed, w.For = d.Seed, d.Duration
	feed, err := load.OpenWorkload(w)
	if err != nil {
		return nil, false, err
	}
	defer feed.Close()
	slo := p.goalsAsSLO()
	s := sim.Scenario{
		Fleet: p.makeFleet(counts, alone), Workload: feed, Policy: d.Policy, Seed: d.Seed, Duration: d.Duration, WarmUp: d.WarmUp, SLO: slo.toSim(),
		AlwaysGateways: true,
	}
	if alone >= 0 {
		s.Workload = &regionFeed{feed, int32(alone)}
	}
	p.tries++
	r, err := sim.Run(ctx, s, p.reportProgress)
	if err != nil {
		if alone >= 0 {
			err = fmt.Errorf("region %s: %w", d.Sites[alone].Name, err)
		}
		return nil, false, err
	}
	return r, p.goalsMet(r), nil
}

// reportProgress reports an estimate: a region takes about ten runs.
func (p *capacityPlanner) reportProgress(done float64) {
	const runs = 10
	stages := float64(len(p.demand.Sites) + 1)
	if p.demand.OnProgress != nil {
		part := min(float64(p.stage)/stages, (float64(p.tries-1)+done)/(runs*stages))
		p.demand.OnProgress(max(part, min((float64(p.tries-1)+done)/(runs*stages), float64(p.stage+1)/stages)))
	}
}

// goalsMet reports whether the goals are met for every region with clients.
func (p *capacityPlanner) goalsMet(r *sim.RunResult) bool {
	for _, g := range p.demand.Goals {
		m, _ := findMetric(g.Figure)
		for i := range r.Regions {
			part := &r.Regions[i]
			if part.Counts.Sent == 0 {
				continue
			}
			if v, why := m.ofPart(part, r.Window); why != "" || v > g.Within.Seconds() {
				return false
			}
		}
	}
	return true
}

// makeFleet distributes workers over zones. Zones and regions without workers are left out.
func (p *capacityPlanner) makeFleet(counts []int, alone int) (f sim.Fleet) {
	for i := range p.demand.Sites {
		s := &p.demand.Sites[i]
		if alone >= 0 && alone != i {
			continue
		}
		r := sim.FleetRegion{Name: s.Name, Lat: s.Lat, Lon: s.Lon}
		for k, n := range spreadEvenly(counts[i], len(s.Zones)) {
			if n > 0 {
				r.Zones = append(r.Zones, sim.FleetZone{Name: s.Zones[k], Groups: []sim.WorkerGroup{{Count: n, GPU: s.GPU, Model: p.demand.Model, TP: s.TP}}})
			}
		}
		f.Regions = append(f.Regions, r)
	}
	return f
}

// spreadEvenly distributes n over zones as evenly as possible.
func spreadEvenly(n, zones int) []int {
	out := make([]int, zones)
	for i := range out {
		out[i] = n / zones
		if i < n%zones {
			out[i]++
		}
	}
	return out
}

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
