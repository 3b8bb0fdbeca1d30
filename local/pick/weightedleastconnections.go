package pick

// chooseWeightedLeastConnections picks the worker with the fewest sequences for its weight; ties at random.
func (v *WorkerView) chooseWeightedLeastConnections() int32 {
	for _, at := range v.candidates {
		v.costs[at] = v.seqsForWeight(at)
	}
	return v.pickCheapest(zeroSlack)
}

// seqsForWeight includes the new request, so that weights matter between idle workers.
func (v *WorkerView) seqsForWeight(at int32) float64 {
	return (v.sequencesOn(at) + 1) / v.costInputs[at].effectiveWeight
}
