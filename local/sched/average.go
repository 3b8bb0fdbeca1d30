package sched

// movingAverage is the mean of about the last 50 values; older ones decay.
type movingAverage struct {
	mean  float64
	count int
}

func (a *movingAverage) addSample(v float64) {
	a.count++
	a.mean += (v - a.mean) / float64(min(a.count, 50))
}

func (a *movingAverage) meanOr(def float64) float64 {
	if a.count == 0 {
		return def
	}
	return a.mean
}
