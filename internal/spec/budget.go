package spec

import (
	"math"
	"time"
)

// The scopes of a tenant's limits and budget.
const (
	ScopeRegion = "region"
	ScopeGlobal = "global"
)

// The actions when a tenant's daily budget is spent.
const (
	SpentStop     = "stop"
	SpentThrottle = "throttle"
)

// Budget bounds what a tenant may use per day. Each of several gateways spends its share, as with limits.
type Budget struct {
	// TokensPerDay bounds prompt and output tokens together. 0 means unlimited.
	TokensPerDay int64 `yaml:"tokens_per_day"`
	// DollarsPerDay bounds the cost at the models' prices. 0 means unlimited.
	DollarsPerDay float64 `yaml:"dollars_per_day"`
	// WhenSpent is "stop" (429 until the next day) or "throttle" (class batch, and one concurrent request per
	// gateway).
	WhenSpent string `yaml:"when_spent" default:"stop"`
	// DayOffset is the time from midnight UTC to the start of the day: 5h is midnight in New York in winter,
	// -1h in Berlin.
	DayOffset Duration `yaml:"day_offset"`
}

// Price is the price of a model's tokens, in dollars per million, for budgets and usage records.
type Price struct {
	Prompt     float64 `yaml:"prompt"`     // prompt tokens
	Cached     float64 `yaml:"cached"`     // cached prompt tokens; 0 means the price of prompt tokens
	Completion float64 `yaml:"completion"` // output tokens
}

// CostMicros returns the cost of a response, in millionths of a dollar, rounded up.
func (p *Price) CostMicros(prompt, cached, completion int) int64 {
	rate := p.Cached
	if rate == 0 {
		rate = p.Prompt
	}
	cached = min(cached, prompt)
	return int64(math.Ceil(float64(prompt-cached)*p.Prompt + float64(cached)*rate + float64(completion)*p.Completion - 1e-9))
}

const daySeconds = 24 * 60 * 60

// DayNumber returns the number of the budget day of a time, in days since 1970.
func (b *Budget) DayNumber(now time.Time) int64 {
	at := now.Unix() - int64(time.Duration(b.DayOffset)/time.Second)
	n := at / daySeconds
	if at%daySeconds < 0 {
		n--
	}
	return n
}

// TimeToDayEnd returns the time until the end of the budget day.
func (b *Budget) TimeToDayEnd(now time.Time) time.Duration {
	next := time.Unix((b.DayNumber(now)+1)*daySeconds, 0).Add(time.Duration(b.DayOffset))
	return max(next.Sub(now), 0)
}
