package capacity

import (
	"slices"
	"time"
)

// MaxTableChildren bounds a SummaryTable. When the table is full, a new child replaces the unreachable child with the
// oldest summary, if there is one.
const MaxTableChildren = 4096

// SummaryTable holds the newest summary of each child with its time of arrival. It is not safe for concurrent use:
// callers that share it lock it, and give readers the immutable CapacityView.
type SummaryTable struct {
	thresholds FreshnessThresholds
	children   map[Path]*childEntry
}

type childEntry struct {
	summary      *Summary
	arrivedAt    time.Time
	disconnected bool // the session is closed: unreachable at any age, until a newer summary arrives
}

// NewSummaryTable returns an empty table. Zero thresholds mean their defaults.
func NewSummaryTable(t FreshnessThresholds) *SummaryTable {
	return &SummaryTable{thresholds: t.withDefaults(), children: make(map[Path]*childEntry)}
}

// PutSummary stores a summary that arrived at now, if it is newer than the stored one. It keeps s, which must not
// change afterwards. For a repeated or older summary, and when the table is full, it returns false and changes nothing.
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

// evictOldest removes the unreachable child with the oldest summary.
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

// MarkUnreachable marks a child unreachable at once, as when its session closed. Its last summary stays until
// RemoveChild.
func (b *SummaryTable) MarkUnreachable(p Path) {
	if e := b.children[p]; e != nil {
		e.disconnected = true
	}
}

// RemoveChild removes a child that will not return.
func (b *SummaryTable) RemoveChild(p Path) { delete(b.children, p) }

// BootOf returns the boot of the newest summary of p, or zero. The summaries of a reconnecting child are accepted only
// with a greater one.
func (b *SummaryTable) BootOf(p Path) (boot uint64) {
	if e := b.children[p]; e != nil {
		return e.summary.Boot
	}
	return 0
}

// Len returns the number of children, including unreachable ones.
func (b *SummaryTable) Len() int { return len(b.children) }

// BuildView returns the content of the table at now.
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

// entryAge returns an age of at least 0: now may be a little before the arrival.
func (b *SummaryTable) entryAge(e *childEntry, now time.Time) time.Duration {
	return max(now.Sub(e.arrivedAt), 0)
}
