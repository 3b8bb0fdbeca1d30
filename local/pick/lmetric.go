package pick

// chooseLMetric picks the worker with the least product of the prompt tokens it would compute and the sequences it
// would run; near-ties at random.
func (v *WorkerView) chooseLMetric() int32 {
	for _, at := range v.candidates {
		v.costs[at] = v.pendingTokensOn(at) * (v.sequencesOn(at) + 1) / v.costInputs[at].effectiveWeight
	}
	return v.pickCheapest(relativeTieSlack)
}
