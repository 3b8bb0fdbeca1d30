package snapshot

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
)

func TestChangesAreRecentForAWhile(t *testing.T) {
	var c ChangeTracker
	now := time.Now()
	var none, one steer.RegionSet
	one.Add(0)
	for _, step := range []struct {
		drained steer.RegionSet
		after   time.Duration
		want    bool
	}{
		{one, 0, false}, // the first snapshot after a start is not a change
		{one, time.Hour, false},
		{none, time.Second, true},
		{none, changeWindow - time.Second, true},
		{none, time.Second, false},
		{one, time.Hour, true},
		{one, changeWindow, false},
	} {
		now = now.Add(step.after)
		if got := c.trackChanges(step.drained, none, now); got != step.want {
			t.Errorf("after %s: changed recently %v", step.after, got)
		}
	}
}
