package lab

import (
	"context"
	"math"

	"github.com/spillway-lb/spillway/chaos/sim"
)

// found is what a search came to, with one seed.
type found struct {
	sample
	probes []Probe
	limit  string
	busy   float64 // requests under way at what was found, on average
	short  string  // the trace's end, where it came early
}

// tries is how many runs a search takes: its bounds, and halvings of the ratio between them.
func (c *Capacity) tries() int {
	return 2 + max(int(math.Ceil(math.Log2(math.Log(c.To/c.From)/math.Log1p(c.Within)))), 0)
}

// search finds the greatest value that meets the SLO, by halving the ratio between one that does and one that does not.
func (p *play) search(ctx context.Context, j *job) (*found, error) {
	f, k := &found{}, j.c.Capacity
	step, tries := 0.0, float64(k.tries())
	try := func(value float64) (bool, error) {
		c, err := j.c.with(value)
		if err != nil {
			return false, err
		}
		r, how, err := p.once(ctx, &c, j.policy, j.seed, func(done float64) { p.tell(j, min((step+done)/tries, 1)) })
		if err != nil {
			return false, err
		}
		step++
		f.note(value, r, c.SLO, k.Attainment)
		if r.Attainment < k.Attainment {
			return false, nil
		}
		f.busy, f.short = ratio(float64(r.Measured.Completed), r.Window.Seconds())*r.E2E.Mean().Seconds(), how.short
		return true, nil
	}
	low, high := k.From, k.To
	ok, err := try(low)
	if err != nil {
		return nil, err
	}
	if !ok {
		f.below = low
		f.why = "even " + plainNumber(low) + " does not meet the SLO: " + f.limit
		return f, nil
	}
	if ok, err = try(high); err != nil {
		return nil, err
	}
	if ok {
		f.v, f.beyond = high, true
		return f, nil
	}
	for j.c.apart(low, high) {
		middle := math.Sqrt(low * high)
		if j.c.Vary != "rate" {
			middle = math.Round(middle)
		}
		if ok, err = try(middle); err != nil {
			return nil, err
		}
		if ok {
			low = middle
		} else {
			high = middle
		}
	}
	f.v = low
	return f, nil
}

// apart says whether there is something left between what meets the SLO and what does not.
func (c *Case) apart(low, high float64) bool {
	if c.Vary != "rate" && math.Round(math.Sqrt(low*high)) <= low {
		return false
	}
	if c.Vary != "rate" && math.Round(math.Sqrt(low*high)) >= high {
		return false
	}
	return high/low > 1+c.Capacity.Within
}

func (f *found) note(value float64, r *sim.Result, slo *SLO, want float64) {
	f.probes = append(f.probes, Probe{Value: value, Goodput: r.Goodput, Attainment: r.Attainment})
	if why := bottleneck(r, slo, want); why != "" {
		f.limit = why
	}
}
