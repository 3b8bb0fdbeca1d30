package pick

// chooseRoundRobin picks the workers in turn, skipping those without room. A worker with a reduced share takes only
// that share of its turns.
func (v *WorkerView) chooseRoundRobin() int32 {
	n := len(v.candidates)
	first := 0
	for i, at := range v.candidates {
		if uint32(at) >= v.turnCursor%uint32(len(v.Workers)) {
			first = i
			break
		}
	}
	chosen := v.candidates[first]
	for i := range n {
		at := v.candidates[(first+i)%n]
		if s := v.relativeShare(at); s >= 1 || v.rng.Float64() < s {
			chosen = at
			break
		}
	}
	if !v.peeking {
		v.turnCursor = (uint32(chosen) + 1) % uint32(len(v.Workers))
	}
	return chosen
}

// relativeShare returns the worker's share relative to the greatest one, without its weight.
func (v *WorkerView) relativeShare(at int32) float64 {
	return v.Workers[at].shareOrDefault() / max(v.maxShare, 1e-9)
}
