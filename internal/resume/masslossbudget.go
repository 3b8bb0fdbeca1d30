package resume

import "time"

// repaidPerSecond is the refill rate of the budget, in resumptions per second.
const repaidPerSecond = 10.0

// MassLossBudget allows the streams of one mass loss to be resumed beyond the retry budget: at most as many as
// are open, refilled at 10/s. A resumed stream takes no more capacity than before, and is resumed once; but an
// endpoint that dies repeatedly must not cause repeated prefills of all its streams. The zero value is ready to
// use.
type MassLossBudget struct {
	spent     float64
	updatedAt time.Time
}

// TakeResume takes one resumption, with open the number of open streams.
func (a *MassLossBudget) TakeResume(now time.Time, open int) bool {
	if !a.updatedAt.IsZero() && now.After(a.updatedAt) {
		a.spent = max(a.spent-repaidPerSecond*now.Sub(a.updatedAt).Seconds(), 0)
	}
	if a.updatedAt.IsZero() || now.After(a.updatedAt) {
		a.updatedAt = now
	}
	if a.spent+1 > float64(open) {
		return false
	}
	a.spent++
	return true
}
