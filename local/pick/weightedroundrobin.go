package pick

import "math"

// weightedRoundRobin takes the workers in turn by weight, and spreads a heavy worker's turns between the others'
// instead of bunching them: each gains its weight in credit, the richest is taken and pays for all.
func (v *View) weightedRoundRobin() int32 {
	total, richest := 0.0, math.Inf(-1)
	chosen := v.cands[0]
	for _, at := range v.cands {
		p := v.brief[at].power
		total += p
		if c := v.turns[at] + p; c > richest {
			richest, chosen = c, at
		}
	}
	if v.looking || !(total < math.MaxFloat64) {
		return chosen
	}
	for _, at := range v.cands {
		v.turns[at] += v.brief[at].power
	}
	v.turns[chosen] -= total
	return chosen
}
