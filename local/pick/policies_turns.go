package pick

import "math"

// Policies that do not look at load: in turn, or at random.

// turnState is the state of the policies that take turns, by index into WorkerView.Workers.
type turnState struct {
	cursor uint32    // round_robin: the first worker whose turn may be next
	credit []float64 // weighted_round_robin: each worker's credit
}

// chooseRoundRobin picks the workers in turn, skipping those without room. A worker with a reduced share takes only
// that share of its turns.
func chooseRoundRobin(p *placement) int32 {
	n := len(p.candidates)
	first := 0
	for i, at := range p.candidates {
		if uint32(at) >= p.turns.cursor%uint32(len(p.Workers)) {
			first = i
			break
		}
	}
	chosen := p.candidates[first]
	for i := range n {
		at := p.candidates[(first+i)%n]
		if s := p.relativeShare(int(at)); s >= 1 || p.rng.Float64() < s {
			chosen = at
			break
		}
	}
	if !p.peeking {
		p.turns.cursor = (uint32(chosen) + 1) % uint32(len(p.Workers))
	}
	return chosen
}

// chooseWeightedRoundRobin picks the workers in turn by weight and interleaves a heavy worker's turns with the others'
// (nginx's smooth weighted round robin). Each worker gains its weight in credit; the one with most credit is picked and
// pays the sum.
func chooseWeightedRoundRobin(p *placement) int32 {
	total, richest := 0.0, math.Inf(-1)
	chosen := p.candidates[0]
	for _, at := range p.candidates {
		w := p.weights[at]
		total += w
		if c := p.turns.credit[at] + w; c > richest {
			richest, chosen = c, at
		}
	}
	if p.peeking || !(total < math.MaxFloat64) {
		return chosen
	}
	for _, at := range p.candidates {
		p.turns.credit[at] += p.weights[at]
	}
	p.turns.credit[chosen] -= total
	return chosen
}

// chooseRandom picks any worker that has room, a recovering one in proportion to its share.
func chooseRandom(p *placement) int32 {
	return drawWeighted(p, func(at int32) float64 { return p.relativeShare(int(at)) })
}

// chooseWeightedRandom picks a worker at random, in proportion to its weight.
func chooseWeightedRandom(p *placement) int32 {
	return drawWeighted(p, func(at int32) float64 { return p.weights[at] })
}
