package uplink

import (
	"errors"
	"fmt"
	"time"
)

// Boot numbers are start times in Unix nanoseconds. One far ahead of the clock is never honest, and believing it would
// leave no greater number for the next start. A child's bound is below a parent's, so that a parent whose clock is behind
// still takes what a child may raise its boot to.
const (
	// childBootAhead is how far ahead of its clock a child follows a parent's HeldBoot.
	childBootAhead = 24 * time.Hour
	// parentBootAhead is how far ahead of its clock a parent takes the boot of a child.
	parentBootAhead = 2 * childBootAhead
)

var errBoot = errors.New("its boot number is too far ahead of this node's clock: set the clocks of both nodes")

// maxBoot is the greatest boot that is taken at now.
func maxBoot(now time.Time, ahead time.Duration) uint64 {
	return uint64(max(now.Add(ahead).UnixNano(), 0))
}

// checkBoot refuses a boot that is too far ahead of now.
func checkBoot(boot uint64, now time.Time) error {
	if limit := maxBoot(now, parentBootAhead); boot > limit {
		return fmt.Errorf("boot %d, at most %d: %w", boot, limit, errBoot)
	}
	return nil
}
