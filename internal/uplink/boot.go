package uplink

import (
	"errors"
	"fmt"
	"time"
)

// Boot numbers are start times in Unix nanoseconds. One far ahead of the clock is never valid, and accepting it would
// leave no greater number for the next start. The bound on a child is below that on a parent, so that a parent whose
// clock is behind still accepts any boot to which a child may raise its own.
const (
	// maxChildBootLead is how far ahead of its clock a child accepts a parent's HeldBoot.
	maxChildBootLead = 24 * time.Hour
	// maxParentBootLead is how far ahead of its clock a parent accepts the boot of a child.
	maxParentBootLead = 2 * maxChildBootLead
)

var errBootTooFarAhead = errors.New("its boot number is too far ahead of this node's clock: set the clocks of both nodes")

// maxBoot is the greatest boot that is accepted at now.
func maxBoot(now time.Time, ahead time.Duration) uint64 {
	return uint64(max(now.Add(ahead).UnixNano(), 0))
}

// checkBoot refuses a boot that is too far ahead of now.
func checkBoot(boot uint64, now time.Time) error {
	if limit := maxBoot(now, maxParentBootLead); boot > limit {
		return fmt.Errorf("boot %d, at most %d: %w", boot, limit, errBootTooFarAhead)
	}
	return nil
}
