package pick

// chooseLeastResponseTime picks the worker with the least product of the peak EWMA of its times to first token and its
// sequences. A worker without answers counts with its prior.
func (v *WorkerView) chooseLeastResponseTime() int32 {
	for _, at := range v.candidates {
		b := &v.costInputs[at]
		v.costs[at] = v.Workers[at].Latency.PeakSeconds(b.prefillBase, v.wallClock) * (v.sequencesOn(at) + 1) / b.effectiveWeight
	}
	return v.pickCheapest(relativeTieSlack)
}

// relativeTieSlack is 2 % of the best cost, independent of its unit.
func relativeTieSlack(best float64) float64 { return 0.02 * best }
