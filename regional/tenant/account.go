package tenant

import (
	"math"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

const (
	// askedWindow is the time constant in which what was asked for is forgotten: short, so that a burst is soon leased.
	askedWindow = 5 * time.Second
	// idleAsked is the number of requests below which nothing counts as asked for any more.
	idleAsked = 0.01
)

// account is one tenant's use.
type account struct {
	terms            Terms
	requests, tokens bucket
	running          int
	asked            asked
	day              int64
	spent            [2]int64 // in the day: tokens, and millionths of a dollar
	reserved         [2]int64 // by requests under way
}

// asked is what a tenant asked for lately, refused or not.
type asked struct {
	requests, tokens, turned float64
	at                       time.Time
}

func (a *asked) decay(now time.Time) {
	if d := now.Sub(a.at); d > 0 {
		k := math.Exp(-d.Seconds() / askedWindow.Seconds())
		a.requests, a.tokens, a.turned, a.at = a.requests*k, a.tokens*k, a.turned*k, now
	}
}

// perMinute is a sum as a rate, in thousandths.
func perMinute(sum float64) int64 { return round(sum / askedWindow.Minutes() * 1000) }

// round keeps two digits, so that what stays about the same need not be told again.
func round(x float64) int64 {
	if x < 1 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-1)
	return int64(math.Round(x/unit) * unit)
}

// turn begins the day that now lies in.
func (a *account) turn(day int64) {
	if a.day != day {
		a.day, a.spent = day, [2]int64{}
	}
}

// spentAs is what was spent of the day's budget, as an allowance.
func (a *account) spentAs() spec.Allowance {
	return spec.Allowance{spec.DayTokens: a.spent[0], spec.DayMicros: a.spent[1]}
}

// idle accounts can be made again as they are.
func (a *account) idle(now time.Time) bool {
	a.asked.decay(now)
	return a.running == 0 && a.asked.requests < idleAsked && a.spent == [2]int64{} && a.requests.level >= 0 && a.tokens.level >= 0 &&
		now.Sub(a.requests.at) > time.Minute && now.Sub(a.tokens.at) > time.Minute
}
