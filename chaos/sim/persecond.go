package sim

import "time"

// SecondCounts counts the requests that were due in one second of the run, including the warm-up.
type SecondCounts struct {
	Sent int32 `json:"sent"`
	Good int32 `json:"good"` // met the SLO, at any end of their answers
}

// countsForDueSecond is the SecondCounts of the second in which a request was due.
func (r *simulation) countsForDueSecond(x *simulatedRequest) *SecondCounts {
	n := int(x.dueAt / int64(time.Second))
	for len(r.result.PerSecond) <= n {
		r.result.PerSecond = append(r.result.PerSecond, SecondCounts{})
	}
	return &r.result.PerSecond[n]
}
