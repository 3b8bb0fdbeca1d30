package routing

import "github.com/spillway-lb/spillway/internal/capacity"

// coldStartSeconds returns the time until a zone without a ready worker can have loaded the model; false when it cannot.
// It applies only in the request's own region: requests spill to ready workers only.
func (q *RouteQuery) coldStartSeconds(l *LocalInstance) (float64, bool) {
	m := q.modelEntry(l.Summary)
	switch {
	case q.Hops > 0 || m == nil || m.Ready > 0 || m.Warm+m.Cold <= 0:
		return 0, false
	case l.State == capacity.Unreachable || l.Drained || l.Summary.Draining:
		return 0, false
	}
	return m.LoadSeconds(defaultWarmLoadSeconds, defaultColdLoadSeconds)
}
