package capacity

// minKnown is the shorter of two times of which 0 stands for one that is not known. It is associative and commutative, and
// 0 is its identity.
func minKnown(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// LoadSeconds is how long a model that nobody has ready takes until it is, in seconds: the shortest way that the subtree
// has. warm and cold stand for what was not measured. ok is false where no worker could have the model.
func (m *ModelCapacity) LoadSeconds(warm, cold float64) (seconds float64, ok bool) {
	known := func(millis int64, prior float64) float64 {
		if millis > 0 {
			return float64(millis) / 1000
		}
		return prior
	}
	switch {
	case m.Warm > 0 && m.Cold > 0:
		return min(known(m.WarmMillis, warm), known(m.ColdMillis, cold)), true
	case m.Warm > 0:
		return known(m.WarmMillis, warm), true
	case m.Cold > 0:
		return known(m.ColdMillis, cold), true
	}
	return 0, false
}
