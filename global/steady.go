package global

import (
	"cmp"
	"math"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
)

// What a planner is told of demand and capacity trembles: a gateway's rate of demand is that of the last ten seconds, and
// of a few requests a second ten seconds hold few. A plan that follows the trembling sends clients to and fro. So the
// planner goes by what lasts, and follows at once where a figure leaves the range in which chance keeps it.
const (
	demandWindow = 10 * time.Second // that gateways take their rates over
	steadyOver   = time.Minute      // time constant of what lasts
	followFor    = 3 * demandWindow // after a step, until the gateways' windows are full of it
	chance       = 2.5              // standard deviations that are taken for chance
	rateTrembles = 0.35             // part of itself by which a worker's learned rate trembles
)

// steady is a figure that follows what lasts, and steps at once.
type steady struct {
	value  float64
	at     time.Time
	follow time.Time     // until when it is taken as it is
	over   time.Duration // time constant where it is not steadyOver
}

// next takes a reading and returns the figure; tolerance is the part of itself that chance may move it by.
func (s *steady) next(x, tolerance float64, now time.Time) float64 {
	first := s.at.IsZero()
	dt := now.Sub(s.at)
	s.at = now
	if first || math.Abs(x-s.value) > tolerance*s.value {
		s.follow = now.Add(followFor)
		if first {
			s.follow = now
		}
	}
	if first || now.Before(s.follow) {
		s.value = x
		return x
	}
	over := min(max(now.Sub(s.follow), demandWindow), cmp.Or(s.over, steadyOver)) // longer and longer, so that the last reading counts for little
	s.value += (1 - math.Exp(-dt.Seconds()/over.Seconds())) * (x - s.value)
	return s.value
}

// steadies are a planner's figures. Those that nobody asks for any more are forgotten.
type steadies[K comparable] map[K]*steady

func (m *steadies[K]) keep(all map[K]bool) {
	for k := range *m {
		if !all[k] {
			delete(*m, k)
		}
	}
}

func (m *steadies[K]) of(k K) *steady {
	if *m == nil {
		*m = steadies[K]{}
	}
	s := (*m)[k]
	if s == nil {
		s = new(steady)
		(*m)[k] = s
	}
	return s
}

// calm replaces demand and rates by what lasts of them, and waits by what demand does not explain.
func (p *planner) calm(v *View, in *steer.Input, now time.Time) {
	p.calmRates(v, in.Regions, now)
	for r := range in.Regions {
		for i := range in.Regions[r].Models {
			m := &in.Regions[r].Models[i]
			tokens, requests := v.offered(r, m.Name)
			m.Wait = max(0, m.Wait-p.backlogs.of(waitKey{v.spec.Regions[r].Name, m.Name}, queueing(m, tokens, requests), now))
		}
	}
	p.backlogs.forget(now)
	p.calmDemand(v, in.Demand, now)
	in.Heavy = p.heavy.calm(in.Heavy, v.requestTokens(), now)
}

// calmRates steadies each region's rate by worker, so that workers that come and go count at once.
func (p *planner) calmRates(v *View, regions []steer.Region, now time.Time) {
	seen := map[waitKey]bool{}
	for r := range regions {
		for i := range regions[r].Models {
			m := &regions[r].Models[i]
			if m.Ready <= 0 || m.Rate <= 0 {
				continue
			}
			key := waitKey{v.spec.Regions[r].Name, m.Name}
			seen[key] = true
			m.Rate = m.Ready * p.rates.of(key).next(m.Rate/m.Ready, rateTrembles, now)
		}
	}
	p.rates.keep(seen)
}

// calmDemand steadies each cell's demand over all regions that it arrives in: a client that moves changes nothing.
func (p *planner) calmDemand(v *View, demand []steer.Demand, now time.Time) {
	rate, requests := map[demandKey]float64{}, map[demandKey]float64{}
	for i := range demand {
		d := &demand[i]
		rate[demandKey{service: d.Service, model: d.Model, cell: d.Cell}] += d.Rate
	}
	for r := range v.regions {
		if !v.regions[r].heard || v.regions[r].dead {
			continue
		}
		for _, d := range v.regions[r].group.Summary.Demand {
			x := v.demandOf(r, d.Service, d.Model, d.Cell, d.TokensPerSec)
			requests[demandKey{service: x.Service, model: x.Model, cell: x.Cell}] += float64(d.RequestsPerSecMilli) / 1000
		}
	}
	factor, seen := map[demandKey]float64{}, map[demandKey]bool{}
	for key, x := range rate {
		if x > 0 && requests[key] > 0 {
			// Requests that are independent and of unlike length: the variance of their tokens is about twice their number's.
			tolerance := chance / math.Sqrt(demandWindow.Seconds()*requests[key])
			factor[key], seen[key] = p.demands.of(key).next(x, tolerance, now)/x, true
		}
	}
	p.demands.keep(seen)
	for i := range demand {
		d := &demand[i]
		if f, ok := factor[demandKey{service: d.Service, model: d.Model, cell: d.Cell}]; ok {
			d.Rate *= f
		}
	}
}

// offered is what clients ask of a model in a region, in tokens/s and requests/s.
func (v *View) offered(region int, model string) (tokens, requests float64) {
	for _, d := range v.regions[region].group.Summary.Demand {
		if d.Model == model {
			tokens += float64(d.TokensPerSec)
			requests += float64(d.RequestsPerSecMilli) / 1000
		}
	}
	return tokens, requests
}

// queueing is the wait that a region's own load explains, by the approximation for many servers of Sakasegawa (1977). It
// is the price of capacity that stands for it in a plan. Counted as well, it would close a loop through utilisation: a
// region of few workers would send its clients away because of them, and take them back because they are gone.
func queueing(m *steer.Model, tokens, requests float64) float64 {
	if m.Rate <= 0 || m.Ready < 1 || requests <= 0 {
		return 0
	}
	busy := min(tokens/m.Rate, 0.95)
	service := tokens / requests * m.Ready / m.Rate
	return service * math.Pow(busy, math.Sqrt(2*(m.Ready+1))-1) / (m.Ready * (1 - busy))
}
