package pick

// chooseLeastQueue picks the worker with the fewest requests waiting for prefill; ties by sequences and then at random.
func (v *WorkerView) chooseLeastQueue() int32 {
	for _, at := range v.candidates {
		v.costs[at] = (v.queuedRequestsOn(at)+1)/v.costInputs[at].effectiveWeight + 1e-6*v.sequencesOn(at)
	}
	return v.pickCheapest(zeroSlack)
}

// queuedRequestsOn returns the requests on a worker whose answer has not begun, our own and foreign ones.
func (v *WorkerView) queuedRequestsOn(at int32) float64 {
	return float64(v.Ledger.QueuedRequests(v.costInputs[at].id))
}
