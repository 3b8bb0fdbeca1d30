package pick

// chooseLeastConnections picks the worker with the fewest sequences; ties at random.
func (v *WorkerView) chooseLeastConnections() int32 {
	for _, at := range v.candidates {
		v.costs[at] = (v.sequencesOn(at) + 1) / v.relativeShare(at)
	}
	return v.pickCheapest(zeroSlack)
}
