package fault

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Bounds of a place's table of leases.
const (
	// maxLeases bounds the leases that run at one place: a drill has a handful.
	maxLeases = 256
	// rememberFor is how long an ended lease is kept, so that its clearing can be verified.
	rememberFor = time.Hour
	// maxEnded bounds the ended leases that are kept.
	maxEnded = 1024
)

// lease is one fault at a place. It is stored as JSON.
type lease struct {
	Spec    Spec      `json:"spec"`
	Victims []string  `json:"victims,omitempty"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
	// Ended is set when the lease has ended or was cleared. Cleared is set when what clears it has succeeded: until then
	// it is tried again.
	Ended   bool `json:"ended,omitempty"`
	Cleared bool `json:"cleared,omitempty"`
	// Note is what the last attempt to clear it reported.
	Note string `json:"note,omitempty"`
}

// leaseTable is the leases of one place. It is pure: time is an argument.
type leaseTable struct {
	leases map[string]*lease // by id
}

// addLease adds a lease that runs from now. renewed reports that it ran already with an equal spec and was only renewed.
func (t *leaseTable) addLease(s Spec, victims []string, now time.Time) (l *lease, renewed bool, err error) {
	if old := t.leases[s.ID]; old != nil {
		switch {
		case !old.Ended && reflect.DeepEqual(old.Spec, s):
			old.Until = now.Add(s.Lease)
			return old, true, nil
		case !old.Ended:
			return nil, false, fmt.Errorf("fault %s is active as %s of another spec: clear it, or use another id", s.ID, old.Spec.Kind)
		case !old.Cleared:
			return nil, false, fmt.Errorf("fault %s has ended and is not cleared yet (%s): use another id", s.ID, old.Note)
		}
	}
	if n := t.countActive(); n >= maxLeases {
		return nil, false, fmt.Errorf("%d faults are active, the most at one place: clear some", n)
	}
	l = &lease{Spec: s, Victims: victims, Since: now, Until: now.Add(s.Lease)}
	t.leases[s.ID] = l
	return l, false, nil
}

func (t *leaseTable) countActive() (n int) {
	for _, l := range t.leases {
		if !l.Ended {
			n++
		}
	}
	return n
}

// renewLease starts a running lease again from now.
func (t *leaseTable) renewLease(id string, now time.Time) error {
	l := t.leases[id]
	if l == nil || l.Ended || !now.Before(l.Until) {
		return fmt.Errorf("fault %s has ended: inject it again", id)
	}
	l.Until = now.Add(l.Spec.Lease)
	return nil
}

// endExpired ends the leases whose time is over and returns what is to be cleared: those, and earlier ones whose clearing
// failed, by id.
func (t *leaseTable) endExpired(now time.Time) (due []*lease) {
	for _, l := range t.leases {
		if !l.Ended && !now.Before(l.Until) {
			l.Ended = true
		}
		if l.Ended && !l.Cleared {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *lease) int { return cmp.Compare(a.Spec.ID, b.Spec.ID) })
	return due
}

// nextExpiry returns when endExpired has to be called at the latest; ok is false if no lease runs.
func (t *leaseTable) nextExpiry() (at time.Time, ok bool) {
	for _, l := range t.leases {
		if !l.Ended && (!ok || l.Until.Before(at)) {
			at, ok = l.Until, true
		}
	}
	return at, ok
}

// activeLeases lists the leases that run, the oldest first.
func (t *leaseTable) activeLeases() (out []*lease) {
	for _, l := range t.leases {
		if !l.Ended {
			out = append(out, l)
		}
	}
	sortLeases(out)
	return out
}

func sortLeases(ls []*lease) {
	slices.SortFunc(ls, func(a, b *lease) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Spec.ID, b.Spec.ID))
	})
}

// forgetOld removes ended and cleared leases that are older than rememberFor or too many.
func (t *leaseTable) forgetOld(now time.Time) {
	var ended []*lease
	for id, l := range t.leases {
		switch {
		case !l.Ended || !l.Cleared:
		case now.Sub(l.Until) > rememberFor:
			delete(t.leases, id)
		default:
			ended = append(ended, l)
		}
	}
	sortLeases(ended)
	for _, l := range ended[:max(len(ended)-maxEnded, 0)] {
		delete(t.leases, l.Spec.ID)
	}
}

// boundRestored limits leases that another process wrote: none lasts longer than its length from now, in case the wall
// clock was set back while no process held them.
func (t *leaseTable) boundRestored(now time.Time) {
	for _, l := range t.leases {
		if latest := now.Add(l.Spec.Lease); l.Until.After(latest) {
			l.Until = latest
		}
	}
}
