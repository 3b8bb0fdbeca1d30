package pick

// leastQueue takes the worker with the fewest requests that wait for their prefill, ties by sequences and then at
// random.
func (v *View) leastQueue() int32 {
	for _, at := range v.cands {
		v.costs[at] = (v.queued(at)+1)/v.brief[at].power + 1e-6*v.seqs(at)
	}
	return v.lightest(exact)
}

// queued are the requests that have been sent to a worker and not begun their answer, ours and others'.
func (v *View) queued(at int32) float64 {
	s := &v.Ledger.slots[v.brief[at].id]
	return float64(s.prefilling) + float64(s.foreignWaiting)
}
