package regional

import "github.com/spillway-lb/spillway/internal/capacity"

const (
	// maxOutcomes bounds the (service, model) pairs counted separately, before a stage and during it each. The
	// rest is counted as one without a name.
	maxOutcomes = capacity.MaxOutcomes/2 - 1
)

type (
	outcomeKey     struct{ service, model string }
	outcomeTallies map[outcomeKey]*capacity.OutcomeCounts
)

// tallyFor returns the tally of a key, or the one without a name when there are too many keys.
func (t outcomeTallies) tallyFor(key outcomeKey) *capacity.OutcomeCounts {
	if x := t[key]; x != nil {
		return x
	}
	if len(t) >= maxOutcomes-1 {
		key = outcomeKey{}
	}
	x := t[key]
	if x == nil {
		x = &capacity.OutcomeCounts{Service: key.service, Model: key.model}
		t[key] = x
	}
	return x
}

func (t outcomeTallies) listOutcomes(stage uint64) []capacity.OutcomeCounts {
	out := make([]capacity.OutcomeCounts, 0, len(t))
	for _, x := range t {
		y := *x
		y.Stage = stage
		out = append(out, y)
	}
	return out
}
