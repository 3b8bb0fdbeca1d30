package global

import (
	"time"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
)

const (
	// together is how close to each other regions fall silent that fall silent for one reason.
	together = 1500 * time.Millisecond
	// silent is the age from which a region counts as lost because nothing was heard of it: one that is lost sooner has
	// ended its session, and that says something.
	silent = 1250 * time.Millisecond
	// waking is how long, once a node hears somebody again and there is a leader, the others have to be heard too: a
	// gateway that gave up dials again every five seconds or sooner.
	waking = 30 * time.Second
)

// muffle tells a region's silence from a node's own deafness. All regions do not die in one moment: a node that hears
// nobody any more has lost its links, and what it does not hear says nothing of those that fell silent then. Were it
// taken for their death, the first region to come back would get everybody's clients, and each further one would take
// its own back. So they keep their clients until they are heard, or a quorum that hears others has waited for them.
type muffle struct {
	last map[string]time.Time // by region: when it was last heard
	set  map[string]bool      // those whose silence says nothing
	deaf bool                 // nobody is heard
	woke time.Time            // when somebody was heard again, or a leader known again

	mustered bool // a plan has been read: see muster
}

// next takes what is heard now, and returns the regions, by index, whose silence says nothing.
func (m *muffle) next(f *frame, children *capacity.View, led bool, now time.Time) (out steer.Set) {
	heard := map[string]bool{}
	for _, g := range children.Regions() {
		heard[g.Path.Region] = g.State != capacity.Lost
		if g.State == capacity.Lost && g.Age < silent {
			delete(m.last, g.Path.Region) // it said so
		}
	}
	next, some := map[string]time.Time{}, false
	for i := range f.spec.Regions {
		name := f.spec.Regions[i].Name
		if heard[name] {
			next[name], some = now, true
			delete(m.set, name)
		} else if t, ok := m.last[name]; ok {
			next[name] = t
		}
	}
	m.last = next
	m.wake(some, led, now)
	for i := range f.spec.Regions {
		if m.set[f.spec.Regions[i].Name] {
			out.Add(i)
		}
	}
	return out
}

func (m *muffle) wake(some, led bool, now time.Time) {
	if !some && !m.deaf {
		m.set = map[string]bool{}
		for name, t := range m.last {
			if now.Sub(t) <= together {
				m.set[name] = true
			}
		}
	}
	if !some || m.deaf || !led {
		m.woke = now
	}
	m.deaf = !some
	if now.Sub(m.woke) > waking {
		clear(m.set)
	}
}
