package sim

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// Summary rate as in an uplink's child (internal/uplink): every 250 ms, and every 100 ms for a second after a change.
const (
	summaryInterval       = int64(250 * time.Millisecond)
	activeSummaryInterval = int64(100 * time.Millisecond)
	activePeriod          = int64(time.Second)
)

// summarySender makes an instance's summaries.
type summarySender struct {
	path        capacity.Path
	endpoint    string
	boot        uint64
	lastSummary *capacity.Summary
	changedAt   int64
}

// nextSummary makes the next summary from the current state, and the time of the one after it.
func (t *summarySender) nextSummary(s capacity.Summary, now int64) (summary *capacity.Summary, next int64) {
	var seq uint64
	if t.lastSummary != nil {
		seq, s = t.lastSummary.Seq, capacity.SuppressSmallChanges(t.lastSummary, &s)
	}
	s.Path, s.Endpoint, s.Boot, s.Seq = t.path, t.endpoint, t.boot, seq+1
	s = capacity.FitToLimits(s)
	if t.lastSummary == nil || !isUnchanged(t.lastSummary, &s) {
		t.changedAt = now
	}
	t.lastSummary = &s
	if now-t.changedAt < activePeriod {
		return &s, now + activeSummaryInterval
	}
	return &s, now + summaryInterval
}

// isUnchanged reports whether a summary equals the last one, except for its number and the mark and age of its
// leases.
func isUnchanged(old, s *capacity.Summary) bool {
	x := *s
	x.Seq, x.HeldLeases.Mark, x.HeldLeases.AgeMillis = old.Seq, old.HeldLeases.Mark, old.HeldLeases.AgeMillis
	return x.Equal(*old)
}
