package snapshot

import (
	"time"

	"github.com/spillway-lb/spillway/global/steer"
)

// While a drain or a failover is under way, answers have a shorter TTL, so that clients move back soon if the change
// is reverted. The short TTL ends changeWindow after the last change: a region that stays drained for weeks must not
// cost extra queries for weeks.
const (
	changeWindow    = 5 * time.Minute
	shortTTLDivisor = 4 // divides the TTL
	minShortTTL     = 5 // seconds: below that, shorter TTLs only add queries
)

// ChangeTracker keeps when a region was last drained, lost or restored.
type ChangeTracker struct {
	drained, unreachableByAll steer.RegionSet
	initialized               bool
	changedAt                 time.Time
}

// trackChanges reports whether a drain or a failover is under way. A node's first snapshot is not a change.
func (c *ChangeTracker) trackChanges(drained, gone steer.RegionSet, now time.Time) bool {
	if c.initialized && (drained != c.drained || gone != c.unreachableByAll) {
		c.changedAt = now
	}
	c.initialized, c.drained, c.unreachableByAll = true, drained, gone
	return !c.changedAt.IsZero() && now.Sub(c.changedAt) < changeWindow
}
