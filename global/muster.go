package global

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
)

// muster takes the first plan that a node reads. A node that starts has heard nobody, and gateways dial it one by one,
// each after a backoff of some seconds: a region is not dead because it has not dialled yet, and it was well when the
// plan was made that counts on it. Without a plan nobody has clients to lose, and grace is all there is.
func (m *muffle) muster(f *frame, plan *steer.Plan, now time.Time) {
	if m.mustered || plan == nil {
		return
	}
	m.mustered, m.deaf, m.woke = true, true, now
	if m.set == nil {
		m.set = map[string]bool{}
	}
	for _, name := range plan.Regions {
		if _, known := m.last[name]; !known && f.region(name) >= 0 && !slices.Contains(plan.Without, name) {
			m.set[name] = true
		}
	}
}

// forsaken reports whether the others alone are a majority that does not hear a region. Then what this node hears, or
// does not yet, is of no weight.
func (q *quorum) forsaken(region string) bool {
	deaf := 0
	for _, name := range q.voters {
		if t, said := q.others[name]; name != q.self && said && t.Settled && !t.hears(region) {
			deaf++
		}
	}
	return 2*deaf > len(q.voters)
}

// mute notes what this node's silence does not say. What the others agree on without this node stands.
func (q *quorum) mute(f *frame, silent steer.Set) {
	for i := range f.spec.Regions {
		if silent.Has(i) && !q.forsaken(f.spec.Regions[i].Name) {
			q.muffled.Add(i)
		}
	}
}
