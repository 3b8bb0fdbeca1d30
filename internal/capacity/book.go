package capacity

import (
	"slices"
	"time"
)

// MaxTableChildren bounds a Book. When it is full, the child that has been silent the longest makes room, if it is lost.
const MaxTableChildren = 4096

// SummaryTable holds the newest statement of each child with its time of arrival. It has one writer at a time: callers that
// share it lock it, and hand readers the immutable View.
type SummaryTable struct {
	thresholds FreshnessThresholds
	children   map[Path]*childEntry
}

type childEntry struct {
	summary      *Summary
	arrivedAt    time.Time
	disconnected bool // the session is closed: lost whatever the age, until newer news arrives
}

// NewSummaryTable makes an empty Book; zero thresholds mean their defaults.
func NewSummaryTable(t FreshnessThresholds) *SummaryTable {
	return &SummaryTable{thresholds: t.withDefaults(), children: make(map[Path]*childEntry)}
}

// PutSummary takes a statement that arrived at now, if it is newer than the one held. It keeps s, which must not change
// afterwards. It is false, and nothing changes, for a repeated or overtaken statement and when the Book is full.
func (b *SummaryTable) PutSummary(s *Summary, now time.Time) bool {
	e := b.children[s.Path]
	if e != nil && !s.isNewerThan(e.summary) {
		return false
	}
	if e == nil && len(b.children) >= MaxTableChildren && !b.evictOldest(now) {
		return false
	}
	b.children[s.Path] = &childEntry{summary: s, arrivedAt: now}
	return true
}

// evictOldest forgets the lost child that has been silent the longest.
func (b *SummaryTable) evictOldest(now time.Time) bool {
	var oldest *childEntry
	for _, e := range b.children {
		if b.entryState(e, now) != Unreachable {
			continue
		}
		if oldest == nil || e.arrivedAt.Before(oldest.arrivedAt) ||
			e.arrivedAt.Equal(oldest.arrivedAt) && e.summary.Path.Compare(oldest.summary.Path) < 0 {
			oldest = e
		}
	}
	if oldest == nil {
		return false
	}
	delete(b.children, oldest.summary.Path)
	return true
}

// MarkUnreachable marks a child lost at once, as when its session closed. Its last statement stays until Forget.
func (b *SummaryTable) MarkUnreachable(p Path) {
	if e := b.children[p]; e != nil {
		e.disconnected = true
	}
}

// RemoveChild removes a child that will not come back.
func (b *SummaryTable) RemoveChild(p Path) { delete(b.children, p) }

// BootOf is the boot of the newest statement of p, or zero: what a reconnecting child must exceed to be heard.
func (b *SummaryTable) BootOf(p Path) (boot uint64) {
	if e := b.children[p]; e != nil {
		return e.summary.Boot
	}
	return 0
}

// Len is the number of children, lost ones included.
func (b *SummaryTable) Len() int { return len(b.children) }

// BuildView is what the Book says at now.
func (b *SummaryTable) BuildView(now time.Time) *CapacityView {
	v := &CapacityView{Children: make([]ChildSummary, 0, len(b.children))}
	for _, e := range b.children {
		v.Children = append(v.Children, ChildSummary{Summary: e.summary, Age: b.entryAge(e, now), State: b.entryState(e, now)})
	}
	slices.SortFunc(v.Children, func(a, c ChildSummary) int { return a.Summary.Path.Compare(c.Summary.Path) })
	return v
}

func (b *SummaryTable) entryState(e *childEntry, now time.Time) Freshness {
	if e.disconnected {
		return Unreachable
	}
	return b.thresholds.freshnessAt(b.entryAge(e, now))
}

// entryAge is never negative: a caller's now may be a little older than the arrival.
func (b *SummaryTable) entryAge(e *childEntry, now time.Time) time.Duration {
	return max(now.Sub(e.arrivedAt), 0)
}
