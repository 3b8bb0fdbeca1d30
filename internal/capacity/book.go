package capacity

import (
	"slices"
	"time"
)

// MaxChildren bounds a Book. When it is full, the child that has been silent the longest makes room, if it is lost.
const MaxChildren = 4096

// Book holds the newest statement of each child with its time of arrival. It has one writer at a time: callers that
// share it lock it, and hand readers the immutable View.
type Book struct {
	thresholds Thresholds
	entries    map[Path]*entry
}

type entry struct {
	summary *Summary
	arrived time.Time
	dropped bool // the session is closed: lost whatever the age, until newer news arrives
}

// NewBook makes an empty Book; zero thresholds mean their defaults.
func NewBook(t Thresholds) *Book {
	return &Book{thresholds: t.orDefaults(), entries: make(map[Path]*entry)}
}

// Put takes a statement that arrived at now, if it is newer than the one held. It keeps s, which must not change
// afterwards. It is false, and nothing changes, for a repeated or overtaken statement and when the Book is full.
func (b *Book) Put(s *Summary, now time.Time) bool {
	e := b.entries[s.Path]
	if e != nil && !s.newer(e.summary) {
		return false
	}
	if e == nil && len(b.entries) >= MaxChildren && !b.evict(now) {
		return false
	}
	b.entries[s.Path] = &entry{summary: s, arrived: now}
	return true
}

// evict forgets the lost child that has been silent the longest.
func (b *Book) evict(now time.Time) bool {
	var oldest *entry
	for _, e := range b.entries {
		if b.state(e, now) != Lost {
			continue
		}
		if oldest == nil || e.arrived.Before(oldest.arrived) ||
			e.arrived.Equal(oldest.arrived) && e.summary.Path.Compare(oldest.summary.Path) < 0 {
			oldest = e
		}
	}
	if oldest == nil {
		return false
	}
	delete(b.entries, oldest.summary.Path)
	return true
}

// Drop marks a child lost at once, as when its session closed. Its last statement stays until Forget.
func (b *Book) Drop(p Path) {
	if e := b.entries[p]; e != nil {
		e.dropped = true
	}
}

// Forget removes a child that will not come back.
func (b *Book) Forget(p Path) { delete(b.entries, p) }

// Held is the boot of the newest statement of p, or zero: what a reconnecting child must exceed to be heard.
func (b *Book) Held(p Path) (boot uint64) {
	if e := b.entries[p]; e != nil {
		return e.summary.Boot
	}
	return 0
}

// Len is the number of children, lost ones included.
func (b *Book) Len() int { return len(b.entries) }

// View is what the Book says at now.
func (b *Book) View(now time.Time) *View {
	v := &View{Children: make([]Child, 0, len(b.entries))}
	for _, e := range b.entries {
		v.Children = append(v.Children, Child{Summary: e.summary, Age: b.age(e, now), State: b.state(e, now)})
	}
	slices.SortFunc(v.Children, func(a, c Child) int { return a.Summary.Path.Compare(c.Summary.Path) })
	return v
}

func (b *Book) state(e *entry, now time.Time) Freshness {
	if e.dropped {
		return Lost
	}
	return b.thresholds.state(b.age(e, now))
}

// age is never negative: a caller's now may be a little older than the arrival.
func (b *Book) age(e *entry, now time.Time) time.Duration { return max(now.Sub(e.arrived), 0) }
