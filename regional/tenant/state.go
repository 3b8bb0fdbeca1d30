package tenant

import (
	"math"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

const (
	// demandWindow is the time constant with which demand decays: short, so that a burst gets a lease soon.
	demandWindow = 5 * time.Second
	// idleRequests is the number of requests below which demand counts as none.
	idleRequests = 0.01
)

// tenantState is the usage of one tenant.
type tenantState struct {
	terms            Terms
	requests, tokens minuteBucket
	running          int
	demand           recentDemand
	day              int64
	spent            [2]int64 // in the day: tokens, and millionths of a dollar
	reserved         [2]int64 // by running requests
}

// recentDemand is what a tenant requested recently, refused or not.
type recentDemand struct {
	requests, tokens, refused float64
	updatedAt                 time.Time
}

func (a *recentDemand) decayTo(now time.Time) {
	if d := now.Sub(a.updatedAt); d > 0 {
		k := math.Exp(-d.Seconds() / demandWindow.Seconds())
		a.requests, a.tokens, a.refused, a.updatedAt = a.requests*k, a.tokens*k, a.refused*k, now
	}
}

// milliPerMinute converts a decayed sum to a rate per minute, in thousandths.
func milliPerMinute(sum float64) int64 { return roundToTwoDigits(sum / demandWindow.Minutes() * 1000) }

// roundToTwoDigits keeps two digits, so that a nearly constant value is not reported again.
func roundToTwoDigits(x float64) int64 {
	if x < 1 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-1)
	return int64(math.Round(x/unit) * unit)
}

// startDay begins a new day.
func (a *tenantState) startDay(day int64) {
	if a.day != day {
		a.day, a.spent = day, [2]int64{}
	}
}

// spentAllowance is the usage of the day's budget.
func (a *tenantState) spentAllowance() spec.Quota {
	return spec.Quota{spec.ResourceDayTokens: a.spent[0], spec.ResourceDayMicros: a.spent[1]}
}

// isIdle reports whether the state can be dropped and recreated without loss.
func (a *tenantState) isIdle(now time.Time) bool {
	a.demand.decayTo(now)
	return a.running == 0 && a.demand.requests < idleRequests && a.spent == [2]int64{} && a.requests.level >= 0 && a.tokens.level >= 0 &&
		now.Sub(a.requests.filledAt) > time.Minute && now.Sub(a.tokens.filledAt) > time.Minute
}
