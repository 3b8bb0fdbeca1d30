package global

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
)

// Global nodes compare their wall clocks, because the leader uses its own clock for writes that all nodes apply.
// These duties of the leader depend on wall time and are suspended while its clock is wrong:
//
//   - ending drains whose end has come,
//   - rotating the ticket key each day,
//   - steps of signing the zone that are due by date.
//
// The first ticket key is made in any case, because there are no redirects without it. The day of a tenant's budget,
// the end of a drain in a node's own snapshot and the end of a drain that an operator requests use the clock less its
// estimated error, which does no harm when the clock is corrected. Leases, the window of a staged spec, autopilot and
// the planner's rates and ramps use the monotonic clock, which does not depend on the date.

// clockEstimate is the result of comparing this node's wall clock with the clocks of the voters.
type clockEstimate struct {
	voters int
	known  int // voters whose clock is known, including this node
	// compared is true if the clocks of a majority of at least two voters are known.
	compared bool
	// ahead is the estimated error of this node's clock: positive if it is ahead, 0 if nothing was compared.
	ahead time.Duration
}

// estimateClock compares this node's clock with the voters' clocks. offsets are the offsets of the other nodes'
// clocks from its own. The estimated error is the median of the voters' offsets, negated; the node's own offset is 0.
// Offsets of nodes without a vote do not count.
func estimateClock(self string, voters []string, offsets map[string]time.Duration) clockEstimate {
	out := clockEstimate{voters: len(voters)}
	var known []time.Duration
	for _, name := range voters {
		if name == self {
			known = append(known, 0)
		} else if d, ok := offsets[name]; ok {
			known = append(known, d)
		}
	}
	out.known = len(known)
	out.compared = len(voters) > 1 && 2*len(known) > len(voters)
	if out.compared {
		slices.Sort(known)
		low, high := known[(len(known)-1)/2], known[len(known)/2]
		out.ahead = -(low + (high-low)/2)
	}
	return out
}

// clockState is the conclusion from the comparisons so far. It is immutable.
type clockState struct {
	clockEstimate
	// wrong is true if the last comparison found an error (ahead) beyond the tolerance.
	wrong bool
	// waiting is true shortly after the start, before the first comparison.
	waiting bool
	// offsets are the offsets of the other nodes' clocks from this node's clock, by name. Nodes without a recent
	// report are absent.
	offsets map[string]time.Duration
}

// holdsDuties reports whether timed duties are suspended.
func (c *clockState) holdsDuties() bool { return c != nil && (c.wrong || c.waiting) }

// clockCorrection returns what to add to this node's clock: 0 unless the clock is wrong.
func (c *clockState) clockCorrection() time.Duration {
	if c == nil || !c.wrong {
		return 0
	}
	return -c.ahead
}

// clockGuard evaluates the comparisons. A result stays valid until the next comparison, so that a lost message does
// not release the duties of a leader whose clock is wrong.
type clockGuard struct {
	startedAt    time.Time // time of the first call of updateState
	lastEstimate clockEstimate
}

// updateState evaluates a comparison made at now (monotonic clock).
func (g *clockGuard) updateState(e clockEstimate, offsets map[string]time.Duration, now time.Time) *clockState {
	if g.startedAt.IsZero() {
		g.startedAt = now
	}
	switch {
	case e.compared:
		g.lastEstimate = e
	case e.voters <= 1:
		g.lastEstimate = clockEstimate{}
	}
	out := &clockState{clockEstimate: e, offsets: offsets}
	out.ahead = g.lastEstimate.ahead
	out.wrong = g.lastEstimate.compared && g.lastEstimate.ahead.Abs() > clockTolerance
	out.waiting = e.voters > 1 && !g.lastEstimate.compared && now.Sub(g.startedAt) < clockWait
	return out
}

// describeClock describes the comparison and its effect.
func (c *clockState) describeClock() string {
	switch {
	case c == nil:
		return ""
	case c.wrong:
		return fmt.Sprintf("%s the median of the voters' clocks (%d of %d known): while this node leads, drains do not end, ticket keys are not rotated and signing the zone takes no step: correct the clock",
			formatAhead(c.ahead), c.known, c.voters)
	case c.voters <= 1:
		return "one voter, so there is no clock to compare with: timed duties go by this node's clock"
	case c.waiting:
		return fmt.Sprintf("%d of %d voters' clocks known, too few to compare: timed duties wait for %s after the start", c.known, c.voters, clockWait)
	case !c.compared:
		return fmt.Sprintf("%d of %d voters' clocks known, too few to compare: timed duties go by this node's clock", c.known, c.voters)
	}
	return fmt.Sprintf("%s the median of the voters' clocks (%d of %d known)", formatAhead(c.ahead), c.known, c.voters)
}

func formatAhead(d time.Duration) string {
	if d < 0 {
		return fmt.Sprintf("%.3f s behind", -d.Seconds())
	}
	return fmt.Sprintf("%.3f s ahead of", d.Seconds())
}

// formatOffsets lists the other nodes' offsets.
func (c *clockState) formatOffsets() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c.offsets)) {
		out = append(out, fmt.Sprintf("%s %+.3f s", name, c.offsets[name].Seconds()))
	}
	return strings.Join(out, ", ")
}

// adminStatus returns the clock state for the admin interface.
func (c *clockState) adminStatus() *admin.Clock {
	if c == nil {
		return nil
	}
	out := &admin.Clock{Voters: c.voters, Known: c.known, DutiesWait: c.holdsDuties(), Text: c.describeClock()}
	if c.compared || c.wrong {
		ms := c.ahead.Milliseconds()
		out.AheadMS = &ms
	}
	return out
}

// offsetMS returns a node's offset for the admin interface, or nil if it is unknown. The node's own offset is 0.
func (c *clockState) offsetMS(self, name string) *int64 {
	if c == nil {
		return nil
	}
	d, ok := c.offsets[name]
	if name != self && !ok {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

// timedDuties are the leader's writes that are due by wall time.
type timedDuties struct{ rotateKey, stepSigning, endDrains bool }

// findDueDuties returns which timed duties are due at now. A ticket key with a future date was made by a leader whose
// clock was ahead. It is replaced, because rotation would otherwise stop until that date.
func findDueDuties(st *consensus.State, now time.Time) (due timedDuties) {
	if len(st.TicketKeys) > 0 {
		age := now.Sub(st.TicketKeys[0].At)
		due.rotateKey = age > ticketKeyRotation || age < -clockTolerance
	}
	due.stepSigning = st.Signing.IsStepDue(now)
	for _, d := range st.Drains {
		due.endDrains = due.endDrains || !d.Until.IsZero() && !now.Before(d.Until)
	}
	return due
}
