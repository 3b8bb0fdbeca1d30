package spec

import (
	"math"
	"time"
)

// Scopes are where a tenant's limits and budget may hold.
const (
	ScopeRegion = "region"
	ScopeGlobal = "global"
)

// What happens to a tenant whose day's budget is spent.
const (
	SpentStop     = "stop"
	SpentThrottle = "throttle"
)

// Budget is what a tenant may use in a day. Of several gateways each spends its part, as with limits.
type Budget struct {
	// TokensPerDay, prompt and output together. 0 means unlimited.
	TokensPerDay int64 `yaml:"tokens_per_day"`
	// DollarsPerDay at the models' prices. 0 means unlimited.
	DollarsPerDay float64 `yaml:"dollars_per_day"`
	// WhenSpent is "stop" (429 until the next day) or "throttle" (class batch, and one request at a time at each gateway).
	WhenSpent string `yaml:"when_spent" default:"stop"`
	// DayOffset is how long after midnight UTC the day begins: 5h is midnight in New York in winter, -1h in Berlin.
	DayOffset Duration `yaml:"day_offset"`
}

// Price is what tokens of a model cost, in dollars per million, for budgets and usage records.
type Price struct {
	Prompt     float64 `yaml:"prompt"`     // prompt tokens
	Cached     float64 `yaml:"cached"`     // those of them that a cache saved; 0 means as the others
	Completion float64 `yaml:"completion"` // output tokens
}

// Micros is what an answer costs, in millionths of a dollar, rounded up.
func (p *Price) Micros(prompt, cached, completion int) int64 {
	rate := p.Cached
	if rate == 0 {
		rate = p.Prompt
	}
	cached = min(cached, prompt)
	return int64(math.Ceil(float64(prompt-cached)*p.Prompt + float64(cached)*rate + float64(completion)*p.Completion - 1e-9))
}

const day = 24 * 60 * 60

// Day numbers the day of the budget that a moment lies in, by days since 1970.
func (b *Budget) Day(now time.Time) int64 {
	at := now.Unix() - int64(time.Duration(b.DayOffset)/time.Second)
	n := at / day
	if at%day < 0 {
		n--
	}
	return n
}

// DayEnds is how long the day of the budget lasts yet.
func (b *Budget) DayEnds(now time.Time) time.Duration {
	next := time.Unix((b.Day(now)+1)*day, 0).Add(time.Duration(b.DayOffset))
	return max(next.Sub(now), 0)
}
