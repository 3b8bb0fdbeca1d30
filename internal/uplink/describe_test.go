package uplink

import (
	"testing"
	"time"
)

// TestSilentChildIsNotShownAsConnected: a child without recent summaries is not shown as connected, although QUIC
// takes longer to notice.
func TestSilentChildIsNotShownAsConnected(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		since, last, gap time.Duration
		want             string
	}{
		{time.Hour, 100 * time.Millisecond, 0, "connected"},
		{time.Hour, childSilentAfter, 0, "connected"},
		{time.Hour, childSilentAfter + time.Millisecond, 0, "silent"},
		{time.Hour, 2 * time.Second, time.Second, "connected"},
		{time.Hour, 6 * time.Second, time.Second, "silent"},
		{time.Second, time.Hour, 0, "connected"}, // a new session without a summary yet
	} {
		i := ChildInfo{Since: now.Add(-c.since), LastSummaryAt: now.Add(-c.last)}
		if got := describeChildSession(&i, c.gap, now).State; got != c.want {
			t.Errorf("last statement %s ago, session of %s, gap %s: %s, want %s", c.last, c.since, c.gap, got, c.want)
		}
	}
}
