package pick

// chooseWeightedRandom picks a worker at random, in proportion to its weight.
func (v *WorkerView) chooseWeightedRandom() int32 { return v.drawWeighted(v.effectiveWeightOf) }

// effectiveWeightOf returns the worker's weight times its share.
func (v *WorkerView) effectiveWeightOf(at int32) float64 { return v.costInputs[at].effectiveWeight }
