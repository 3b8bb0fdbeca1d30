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
	bar    float64 // attainment that was asked for at what was found
	busy   float64 // requests under way at what was found, on average
	short  string  // the trace's end, where it came early
	next   float64 // the least value that did not meet the SLO; 0 where none was tried
}

// tries is about how many runs a search takes: halvings of the ratio between its bounds, or a look to both sides of a guess.
func (c *Capacity) tries(guessed bool) int {
	if guessed {
		return 3
	}
	return 1 + max(int(math.Ceil(math.Log2(math.Log(c.To/c.From)/math.Log1p(c.Within)))), 1)
}

// bracket is what a search knows: low meets the SLO and high does not, as far as they were tried.
type bracket struct {
	low, high           float64
	lowTried, highTried bool
	guess               []float64 // tried first, in this order
	stride              float64   // ratio by which a guess that was wrong is left, squared each time
}

// newBracket begins with what another seed has found, where there is that.
func newBracket(k *Capacity, other *found) *bracket {
	b := &bracket{low: k.From, high: k.To}
	if other != nil && other.why == "" && !other.beyond && other.next > other.v {
		b.guess, b.stride = []float64{other.v, other.next}, other.next/other.v
	}
	return b
}

// note takes in how a value did.
func (b *bracket) note(value float64, ok bool) {
	if ok {
		b.low, b.lowTried = max(b.low, value), true
	} else {
		b.high, b.highTried = min(b.high, value), true
	}
}

// next is the value to try; false when there is nothing left between the two.
func (b *bracket) next(c *Case) (float64, bool) {
	for len(b.guess) > 0 {
		v := b.guess[0]
		if b.guess = b.guess[1:]; v > b.low && v < b.high {
			return v, true
		}
	}
	if !c.apart(b.low, b.high) {
		return 0, false
	}
	if b.stride > 1 && b.lowTried != b.highTried { // the guess lies to one side of all
		b.stride *= b.stride
		v := b.low * b.stride
		if b.highTried {
			v = b.high / b.stride
		}
		if v = c.whole(v); v > b.low && v < b.high {
			return v, true
		}
	}
	return c.whole(math.Sqrt(b.low * b.high)), true
}

// whole is a value as the case can have it.
func (c *Case) whole(v float64) float64 {
	if c.Vary == "rate" {
		return v
	}
	return math.Round(v)
}

// search finds the greatest value that meets the SLO, by halving the ratio between one that does and one that does not. Its bounds
// are taken at their word until nothing else is left: what lies far beyond a knee computes the longest and says the least. It
// begins where the same search ended with another seed.
func (p *play) search(ctx context.Context, j *job) (*found, error) {
	f, k := &found{}, j.c.Capacity
	step, tries := 0.0, float64(k.tries(j.guess != nil))
	b := newBracket(k, j.guess)
	try := func(value float64) (bool, error) {
		c, err := j.c.with(value)
		if err != nil {
			return false, err
		}
		bar, err := p.bar(&c, j.at, value, j.seed)
		if err != nil {
			return false, err
		}
		r, how, err := p.once(ctx, &c, j.policy, j.seed, func(done float64) { p.tell(j, min((step+done)/tries, 1)) })
		if err != nil {
			return false, err
		}
		step++
		f.note(value, r, c.SLO, bar)
		ok := r.Attainment >= bar
		if b.note(value, ok); ok {
			f.bar = bar
			f.busy, f.short = ratio(float64(r.Measured.Completed), r.Window.Seconds())*r.E2E.Mean().Seconds(), how.short
		}
		return ok, nil
	}
	for value, more := b.next(j.c); more; value, more = b.next(j.c) {
		if _, err := try(value); err != nil {
			return nil, err
		}
	}
	if !b.lowTried {
		if ok, err := try(k.From); err != nil {
			return nil, err
		} else if !ok {
			f.below, f.why = k.From, "even "+plainNumber(k.From)+" does not meet the SLO: "+f.limit
			return f, nil
		}
	}
	if !b.highTried {
		ok, err := try(k.To)
		if err != nil {
			return nil, err
		}
		f.beyond = ok
	}
	f.v = b.low
	if b.highTried {
		f.next = b.high
	}
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
