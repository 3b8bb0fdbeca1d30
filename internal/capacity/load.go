package capacity

// minKnown returns the shorter of two times; 0 is an unknown time. It is associative and commutative, and 0 is its
// identity.
func minKnown(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// LoadSeconds returns the time until a model without a ready worker is ready, in seconds: the shortest that the subtree
// offers. warm and cold are the values of times that were not measured. ok is false if no worker can load the model.
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
