package stage

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Metric is what a rule bounds.
type Metric uint8

// The metrics.
const (
	ErrorRate   Metric = iota // share of requests that ended by our own fault: 5xx, or broken off
	RefusedRate               // share of requests that were answered 4xx
	TTFT                      // a quantile of the time to first token
)

const (
	// MinRequests is how many requests a figure must rest on where the guard does not say.
	MinRequests = 50
	maxMin      = 1e9
	maxRules    = 16
	maxFactor   = 1000
)

// Rule is one bound.
type Rule struct {
	Metric   Metric
	Quantile float64 // of TTFT, 0..1
	Relative bool    // Limit is a factor on the baseline
	Limit    float64 // a share 0..1, seconds, or a factor
}

// Guard is what takes a spec on trial back. A Guard without rules takes nothing back.
type Guard struct {
	Rules []Rule
	Min   int64 // requests
}

// quantiles are those that a histogram of gateways can tell, by name.
var quantiles = map[string]float64{"ttft_p50": 0.5, "ttft_p90": 0.9, "ttft_p95": 0.95, "ttft_p99": 0.99}

const grammar = "write such as error_rate<2%,ttft_p99<1.5x: error_rate and refused_rate in %, ttft_p50, _p90, _p95 and _p99 in ms or s, or any of them in x (times what is usual), and requests>=N for the least sample"

// Parse reads a guard, such as "error_rate<2%,ttft_p99<1.5x". An empty one has no rules.
func Parse(text string) (Guard, error) {
	g := Guard{Min: MinRequests}
	if strings.TrimSpace(text) == "" {
		return g, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		if err := g.part(strings.TrimSpace(part)); err != nil {
			return Guard{}, fmt.Errorf("guard %.200q: %w", text, err)
		}
	}
	return g, nil
}

func (g *Guard) part(text string) error {
	if name, value, ok := strings.Cut(text, ">="); ok {
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if strings.TrimSpace(name) != "requests" || err != nil || n < 1 || n > maxMin {
			return fmt.Errorf("%.64q: only requests>=N is a least sample\nhint: %s", text, grammar)
		}
		g.Min = n
		return nil
	}
	name, value, ok := strings.Cut(text, "<")
	if !ok {
		return fmt.Errorf("%.64q has no <\nhint: %s", text, grammar)
	}
	r, err := rule(strings.TrimSpace(name), strings.TrimSpace(value))
	if err != nil {
		return err
	}
	for _, old := range g.Rules {
		if old.Metric == r.Metric && old.Quantile == r.Quantile && old.Relative == r.Relative {
			return fmt.Errorf("%s is bounded twice\nhint: keep the smaller of the two", name)
		}
	}
	if len(g.Rules) >= maxRules {
		return fmt.Errorf("more than %d rules", maxRules)
	}
	g.Rules = append(g.Rules, r)
	return nil
}

func rule(name, value string) (Rule, error) {
	r := Rule{}
	var known bool
	switch name {
	case "error_rate":
		r.Metric, known = ErrorRate, true
	case "refused_rate":
		r.Metric, known = RefusedRate, true
	default:
		r.Metric = TTFT
		r.Quantile, known = quantiles[name]
	}
	if !known {
		return r, fmt.Errorf("%.64q is nothing that gateways report\nhint: %s", name, grammar)
	}
	wrong := fmt.Errorf("%s<%.64s is not understood\nhint: %s", name, value, grammar)
	if factor, ok := strings.CutSuffix(value, "x"); ok {
		f, err := strconv.ParseFloat(factor, 64)
		if err != nil || !(f > 0 && f <= maxFactor) {
			return r, wrong
		}
		r.Relative, r.Limit = true, f
		return r, nil
	}
	if r.Metric == TTFT {
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 || d > time.Minute {
			return r, wrong
		}
		r.Limit = d.Seconds()
		return r, nil
	}
	share, ok := strings.CutSuffix(value, "%")
	f, err := strconv.ParseFloat(share, 64)
	if !ok || err != nil || !(f >= 0 && f < 100) {
		return r, wrong
	}
	r.Limit = f / 100
	return r, nil
}

// String is the guard as Parse reads it.
func (g Guard) String() string {
	var parts []string
	for _, r := range g.Rules {
		parts = append(parts, r.String())
	}
	if g.Min != MinRequests {
		parts = append(parts, "requests>="+strconv.FormatInt(g.Min, 10))
	}
	return strings.Join(parts, ",")
}

// Name is the metric's, with its quantile.
func (r Rule) Name() string {
	switch r.Metric {
	case ErrorRate:
		return "error_rate"
	case RefusedRate:
		return "refused_rate"
	}
	return "ttft_p" + strconv.Itoa(int(math.Round(r.Quantile*100)))
}

// String is the rule as Parse reads it.
func (r Rule) String() string {
	if r.Relative {
		return r.Name() + "<" + number(r.Limit) + "x"
	}
	return r.Name() + "<" + r.amount(r.Limit)
}

// amount is a share or a time as people write it.
func (r Rule) amount(v float64) string {
	if r.Metric != TTFT {
		return number(v*100) + "%"
	}
	return time.Duration(math.Round(v * float64(time.Second))).String()
}

// number is short, and exact enough to be read again.
func number(v float64) string { return strconv.FormatFloat(math.Round(v*1e9)/1e9, 'f', -1, 64) }
