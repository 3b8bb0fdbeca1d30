package lab

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
)

const (
	defaultMost = 512
	// idle is a fleet so little busy that more workers change nothing.
	idle = 0.1
)

// provision is a plan under way.
type provision struct {
	d       *Demand
	profile []gpu.Profile // by site
	stage   int
	tries   int
}

// Provision finds the fewest workers that meet the goals, by running the simulator on more and fewer of them: for each region
// by itself, and for all of them together with spilling. The error says what keeps the goals from being met by any number.
func Provision(ctx context.Context, d Demand) (*CapacityPlan, error) {
	p := &provision{d: &d}
	if err := p.check(); err != nil {
		return nil, err
	}
	apart := make([]int, len(d.Sites))
	out := &CapacityPlan{Model: p.profile[0].Model, Apart: Total{Figures: map[string]float64{}}, Shared: Total{Figures: map[string]float64{}}}
	for _, g := range d.Goals {
		out.Goals = append(out.Goals, g.Figure+" within "+g.Within.String())
	}
	c := Case{Workload: &d.Workload}
	out.Workload = c.asked()
	for i := range d.Sites {
		n, err := p.region(ctx, i)
		if err != nil {
			return nil, err
		}
		apart[i] = n
		p.stage++
	}
	shared := slices.Clone(apart)
	if len(d.Sites) > 1 {
		var err error
		if shared, err = p.together(ctx, apart); err != nil {
			return nil, err
		}
	}
	if err := p.sum(ctx, out, apart, shared); err != nil {
		return nil, err
	}
	return out, nil
}

func (p *provision) check() error {
	d := p.d
	switch {
	case len(d.Sites) == 0:
		return errors.New("there is no region to plan for: declare one under regions")
	case len(d.Goals) == 0:
		return errors.New("there is no goal: write --slo ttft_p99=2s")
	case d.Duration <= 0 || d.WarmUp < 0 || d.WarmUp >= d.Duration:
		return fmt.Errorf("%v of arrivals with a warm-up of %v leave nothing to measure: use a longer time (--for), or a shorter warm-up (--warm-up)", d.Duration, d.WarmUp)
	}
	if d.Most <= 0 {
		d.Most = defaultMost
	}
	slo := p.slo()
	for i := range d.Sites {
		s := &d.Sites[i]
		profile, err := gpu.Lookup(s.GPU, d.Model, s.TP)
		if err != nil {
			return fmt.Errorf("region %s: %w", s.Name, err)
		}
		p.profile = append(p.profile, profile)
		if len(s.Zones) == 0 {
			s.Zones = []string{"a"}
		}
		if why := hopeless([]Group{{GPU: s.GPU, Model: d.Model, TP: s.TP, Slowdown: 1}}, &slo); len(why) > 0 {
			return fmt.Errorf("region %s: %s\nhint: %s", s.Name, why[0].reason, why[0].hint)
		}
		d.Workload.Regions = append(d.Workload.Regions, load.Home{Name: s.Name, Share: s.Share, Shift: localTime(s.Lon)})
	}
	return nil
}

// localTime is how far a place's sun is ahead of Greenwich's.
func localTime(lon float64) time.Duration {
	h := math.Round(lon / 15)
	if h < 0 {
		h += 24
	}
	return time.Duration(h) * time.Hour
}

// slo are the goals as what counts as good, so that words can be found for what keeps them from being met.
func (p *provision) slo() (s SLO) {
	for _, g := range p.d.Goals {
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

// region finds the fewest workers of one region by itself.
func (p *provision) region(ctx context.Context, site int) (int, error) {
	counts := make([]int, len(p.d.Sites))
	low, high := 0, 1 // low does not do
	for {
		counts[site] = high
		r, ok, err := p.try(ctx, counts, site)
		if err != nil {
			return 0, err
		}
		if ok {
			break
		}
		slo := p.slo()
		if meanBusy(r) < idle || high >= p.d.Most {
			return 0, fmt.Errorf("no number of workers helps in %s: with %d of %s, %s\nhint: use a faster GPU or more of them as one (--gpu %s=TYPExN), a longer goal, or shorter prompts (--max-prompt)",
				p.d.Sites[site].Name, high, gpuName(p.profile[site].GPU, p.profile[site].TP), p.why(r, &slo), p.d.Sites[site].Name)
		}
		low, high = high, min(2*high, p.d.Most)
	}
	for high-low > 1 {
		middle := (low + high) / 2
		counts[site] = middle
		_, ok, err := p.try(ctx, counts, site)
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

// why says what keeps a run from its goals.
func (p *provision) why(r *sim.Result, slo *SLO) string {
	if s := bottleneck(r, slo, 1); s != "" {
		return s
	}
	for _, g := range p.d.Goals {
		m, _ := findMetric(g.Figure)
		if v, why := m.of(r); why != "" {
			return why
		} else if v > g.Within.Seconds() {
			return fmt.Sprintf("%s is %s", g.Figure, Figure(v, "s"))
		}
	}
	return "some of the clients of one region are not served in time"
}

// together finds fewer workers for regions that spill to each other: first the same part of each region's own need, then one
// less here and there.
func (p *provision) together(ctx context.Context, apart []int) ([]int, error) {
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
		_, ok, err := p.try(ctx, counts, -1)
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
			_, ok, err := p.try(ctx, best, -1)
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

// try runs a fleet and says whether the goals are met: for the clients of one region that is by itself, or for those of each.
func (p *provision) try(ctx context.Context, counts []int, alone int) (*sim.Result, bool, error) {
	d := p.d
	w := d.Workload
	w.Seed, w.For = d.Seed, d.Duration
	feed, err := load.Open(w)
	if err != nil {
		return nil, false, err
	}
	defer feed.Close()
	slo := p.slo()
	s := sim.Scenario{
		Fleet: p.fleet(counts, alone), Workload: feed, Policy: d.Policy, Seed: d.Seed, Duration: d.Duration, WarmUp: d.WarmUp, SLO: slo.sim(),
		Gateways: true,
	}
	if alone >= 0 {
		s.Workload = &natives{feed, int32(alone)}
	}
	p.tries++
	r, err := sim.Run(ctx, s, p.tell)
	if err != nil {
		if alone >= 0 {
			err = fmt.Errorf("region %s: %w", d.Sites[alone].Name, err)
		}
		return nil, false, err
	}
	return r, p.met(r), nil
}

// tell passes on a guess of what is done: a region takes about ten runs.
func (p *provision) tell(done float64) {
	const runs = 10
	stages := float64(len(p.d.Sites) + 1)
	if p.d.Progress != nil {
		part := min(float64(p.stage)/stages, (float64(p.tries-1)+done)/(runs*stages))
		p.d.Progress(max(part, min((float64(p.tries-1)+done)/(runs*stages), float64(p.stage+1)/stages)))
	}
}

// met says whether every region's clients, if there are any, have what the goals say.
func (p *provision) met(r *sim.Result) bool {
	for _, g := range p.d.Goals {
		m, _ := findMetric(g.Figure)
		for i := range r.Regions {
			part := &r.Regions[i]
			if part.Counts.Sent == 0 {
				continue
			}
			if v, why := m.part(part, r.Window); why != "" || v > g.Within.Seconds() {
				return false
			}
		}
	}
	return true
}

// fleet spreads workers over zones. Zones and regions without any are left out.
func (p *provision) fleet(counts []int, alone int) (f sim.Fleet) {
	for i := range p.d.Sites {
		s := &p.d.Sites[i]
		if alone >= 0 && alone != i {
			continue
		}
		r := sim.Region{Name: s.Name, Lat: s.Lat, Lon: s.Lon}
		for k, n := range evenly(counts[i], len(s.Zones)) {
			if n > 0 {
				r.Zones = append(r.Zones, sim.Zone{Name: s.Zones[k], Groups: []sim.Group{{Count: n, GPU: s.GPU, Model: p.d.Model, TP: s.TP}}})
			}
		}
		f.Regions = append(f.Regions, r)
	}
	return f
}

// evenly spreads n over zones as evenly as it goes.
func evenly(n, zones int) []int {
	out := make([]int, zones)
	for i := range out {
		out[i] = n / zones
		if i < n%zones {
			out[i]++
		}
	}
	return out
}
