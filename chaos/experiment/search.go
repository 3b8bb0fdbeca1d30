package experiment

import (
	"context"

	"github.com/spillway-lb/spillway/chaos/sim"
)

// searchResult is the result of a search with one seed.
type searchResult struct {
	seedFigure
	probes      []SearchProbe
	limit       string
	required    float64 // attainment required at the result
	underWay    float64 // mean requests in flight at the result
	earlyEnd    string  // the end of a trace that ended early
	leastFailed float64 // lowest value that missed the SLO; 0 if none was tried
}

// newSearchBracket starts with another seed's result, if there is one.
func newSearchBracket(k *CapacitySearch, other *searchResult) *searchBracket {
	b := &searchBracket{low: k.From, high: k.To}
	if other != nil && other.missing == "" && !other.atLeast && other.leastFailed > other.value {
		b.guess, b.stride = []float64{other.value, other.leastFailed}, other.leastFailed/other.value
	}
	return b
}

// searchCapacity finds the greatest value that meets the SLO, by bisecting the ratio between one that does and one
// that does not. Its bounds are tried last: loads far beyond a knee take longest and tell least. It starts at the
// result of the same search with another seed.
func (p *experimentRun) searchCapacity(ctx context.Context, j *runJob) (*searchResult, error) {
	f, k := &searchResult{}, j.variation.Capacity
	step, tries := 0.0, float64(k.estimateTries(j.guess != nil))
	b := newSearchBracket(k, j.guess)
	try := func(value float64) (bool, error) {
		c, err := j.variation.withValue(value)
		if err != nil {
			return false, err
		}
		bar, err := p.requiredAttainment(&c, j.caseIndex, value, j.seed)
		if err != nil {
			return false, err
		}
		r, how, err := p.runScenario(ctx, &c, j.policy, j.seed, func(done float64) { p.reportProgress(j, min((step+done)/tries, 1)) })
		if err != nil {
			return false, err
		}
		step++
		f.addProbe(value, r, c.SLO, bar)
		ok := r.Attainment >= bar
		if b.recordTry(value, ok); ok {
			f.required = bar
			f.underWay, f.earlyEnd = ratioOrZero(float64(r.Measured.Completed), r.Window.Seconds())*r.E2E.Mean().Seconds(), how.earlyEnd
		}
		return ok, nil
	}
	for value, more := b.nextValue(j.variation); more; value, more = b.nextValue(j.variation) {
		if _, err := try(value); err != nil {
			return nil, err
		}
	}
	if !b.lowTried {
		if ok, err := try(k.From); err != nil {
			return nil, err
		} else if !ok {
			f.below, f.missing = k.From, "even "+formatPlain(k.From)+" does not meet the SLO: "+f.limit
			return f, nil
		}
	}
	if !b.highTried {
		ok, err := try(k.To)
		if err != nil {
			return nil, err
		}
		f.atLeast = ok
	}
	f.value = b.low
	if b.highTried {
		f.leastFailed = b.high
	}
	return f, nil
}

func (f *searchResult) addProbe(value float64, r *sim.RunResult, slo *SLO, want float64) {
	f.probes = append(f.probes, SearchProbe{Value: value, Goodput: r.Goodput, Attainment: r.Attainment})
	if why := explainMissedSLO(r, slo, want); why != "" {
		f.limit = why
	}
}
