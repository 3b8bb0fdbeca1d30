package pick

import "math"

// chooseWeightedRoundRobin picks the workers in turn by weight and interleaves a heavy worker's turns with the others'.
// Each worker gains its weight in credit; the one with most credit is picked and pays the sum.
func (v *WorkerView) chooseWeightedRoundRobin() int32 {
	total, richest := 0.0, math.Inf(-1)
	chosen := v.candidates[0]
	for _, at := range v.candidates {
		p := v.costInputs[at].effectiveWeight
		total += p
		if c := v.turnCredit[at] + p; c > richest {
			richest, chosen = c, at
		}
	}
	if v.peeking || !(total < math.MaxFloat64) {
		return chosen
	}
	for _, at := range v.candidates {
		v.turnCredit[at] += v.costInputs[at].effectiveWeight
	}
	v.turnCredit[chosen] -= total
	return chosen
}
