package experiment

import "github.com/spillway-lb/spillway/chaos/gpu"

// requiredAttainment is the attainment that a search requires in a case with the value.
func (p *experimentRun) requiredAttainment(c *Case, at int, value float64, seed uint64) (float64, error) {
	k := c.Capacity
	if k.Of != attainmentOfPossible {
		return k.Attainment, nil
	}
	key := attainmentKey{at, c.Vary, value, seed}
	p.attainments.mu.Lock()
	part, ok := p.attainments.found[key]
	p.attainments.mu.Unlock()
	if ok {
		return k.Attainment * part, nil
	}
	part, err := c.possibleShare(p.experiment, p.options.Traces, seed)
	if err != nil {
		return 0, err
	}
	p.attainments.mu.Lock()
	defer p.attainments.mu.Unlock()
	if p.attainments.found == nil {
		p.attainments.found = map[attainmentKey]float64{}
	}
	p.attainments.found[key] = part
	return k.Attainment * part, nil
}

// possibleShare is the fraction of the case's measured requests that a half busy worker with an unbounded cache could
// serve in time, 0 to 1. It depends on the fleet's engines and on the workload, and on no policy.
func (c *Case) possibleShare(e *Experiment, traces string, seed uint64) (float64, error) {
	feed, err := c.openFeed(e, traces, seed)
	if err != nil {
		return 0, err
	}
	defer feed.Close()
	a := c.fastestWorker()
	var good, all float64
	for {
		at, ok, err := feed.Peek()
		if err != nil {
			return 0, err
		}
		if !ok {
			return ratioOrZero(good, all), nil
		}
		r := feed.Pop()
		ttft, tpot, e2e := a.serveTimes(r)
		if at >= e.WarmUp {
			all++
			if c.SLO.isMet(sharedSlowdown*ttft, sharedSlowdown*tpot, sharedSlowdown*e2e) {
				good++
			}
		}
		feed.FinishRequest(r, at+e2e, true)
	}
}

// fastestWorker is the fleet's fastest worker, by its prefill time of a long prompt.
func (c *Case) fastestWorker() *idealWorker {
	var best *idealWorker
	for i := range c.Fleet {
		g := &c.Fleet[i]
		p, err := gpu.LookupProfile(g.GPU, g.Model, g.TP)
		if err != nil {
			continue // decoding has refused it
		}
		engine, err := gpu.NewEngine(gpu.EngineConfig{Profile: p})
		if err != nil {
			continue
		}
		a := &idealWorker{profile: p, slowdown: g.Slowdown, stepTokens: engine.Limits().MaxBatchedTokens, cachedBlocks: map[uint64]struct{}{}}
		if best == nil || a.prefillTime(0, 8192) < best.prefillTime(0, 8192) {
			best = a
		}
	}
	return best
}
