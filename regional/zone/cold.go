package zone

import "github.com/spillway-lb/spillway/internal/capacity"

// What a load is taken to last where the zone does not say, in seconds: one of the release before does not.
const (
	warmSeconds = 2
	coldSeconds = 30
)

// coldSeconds prices a zone that has the model nowhere ready and could have. Only at home: a request spills into what is
// ready, never into a load.
func (q *Query) coldSeconds(l *Local) (float64, bool) {
	m := q.model(l.Summary)
	switch {
	case q.Hops > 0 || m == nil || m.Ready > 0 || m.Warm+m.Cold <= 0:
		return 0, false
	case l.State == capacity.Lost || l.Drained || l.Summary.Draining:
		return 0, false
	}
	return m.LoadSeconds(warmSeconds, coldSeconds)
}
