package pick

// roundRobin takes the workers in turn, stepping over those that have no room. A worker that is trusted with a share
// of its speed takes only that share of its turns.
func (v *View) roundRobin() int32 {
	n := len(v.cands)
	first := 0
	for i, at := range v.cands {
		if uint32(at) >= v.cursor%uint32(len(v.Workers)) {
			first = i
			break
		}
	}
	chosen := v.cands[first]
	for i := range n {
		at := v.cands[(first+i)%n]
		if s := v.relative(at); s >= 1 || v.rng.Float64() < s {
			chosen = at
			break
		}
	}
	if !v.looking {
		v.cursor = (uint32(chosen) + 1) % uint32(len(v.Workers))
	}
	return chosen
}

// relative is the worker's share against the greatest there is, without its weight.
func (v *View) relative(at int32) float64 { return v.Workers[at].share() / max(v.top, 1e-9) }
