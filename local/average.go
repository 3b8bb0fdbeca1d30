package local

// average forgets: about the last 50 values count.
type average struct {
	mean float64
	n    int
}

func (a *average) add(v float64) {
	a.n++
	a.mean += (v - a.mean) / float64(min(a.n, 50))
}

func (a *average) or(def float64) float64 {
	if a.n == 0 {
		return def
	}
	return a.mean
}
