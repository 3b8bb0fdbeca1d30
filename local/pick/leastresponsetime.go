package pick

// leastResponseTime takes the worker whose peak EWMA of times to first token, times its sequences, is least. A worker
// that has answered nothing yet counts with its prior.
func (v *View) leastResponseTime() int32 {
	for _, at := range v.cands {
		b := &v.brief[at]
		v.costs[at] = v.Workers[at].Latency.Peak(b.base, v.when) * (v.seqs(at) + 1) / b.power
	}
	return v.lightest(nearTieOf)
}

// nearTieOf is a fiftieth of the best, whatever the unit.
func nearTieOf(best float64) float64 { return 0.02 * best }
