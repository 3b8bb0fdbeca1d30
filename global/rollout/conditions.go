package rollout

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Metric is the quantity that a rule bounds.
type Metric uint8

// The metrics.
const (
	ErrorRate   Metric = iota // share of requests that failed by our fault: 5xx, or broken off
	RefusedRate               // share of requests that were answered 4xx
	TTFT                      // a quantile of the time to first token
)

const (
	// DefaultMinRequests is the default minimum number of requests behind a figure.
	DefaultMinRequests = 50
	maxMinRequests     = 1e9
	maxRules           = 16
	maxFactor          = 1000
)

// Rule is one bound.
type Rule struct {
	Metric   Metric
	Quantile float64 // of TTFT, 0..1
	Relative bool    // Limit is a factor on the baseline
	Limit    float64 // a share 0..1, seconds, or a factor
}

// AbortConditions are the conditions that roll a staged spec back. Without rules it is never rolled back.
type AbortConditions struct {
	Rules       []Rule
	MinRequests int64 // requests
}

// quantilesByName are the quantiles that the gateways' histograms support, by name.
var quantilesByName = map[string]float64{"ttft_p50": 0.5, "ttft_p90": 0.9, "ttft_p95": 0.95, "ttft_p99": 0.99}

const grammarHint = "for example error_rate<2%,ttft_p99<1.5x: error_rate and refused_rate in %, ttft_p50, _p90, _p95 and _p99 in ms or s, any of them in x (times the usual value), and requests>=N for the smallest sample"

// ParseConditions parses a guard, such as "error_rate<2%,ttft_p99<1.5x". An empty one has no rules.
func ParseConditions(text string) (AbortConditions, error) {
	g := AbortConditions{MinRequests: DefaultMinRequests}
	if strings.TrimSpace(text) == "" {
		return g, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		if err := g.parseCondition(strings.TrimSpace(part)); err != nil {
			return AbortConditions{}, fmt.Errorf("guard %.200q: %w", text, err)
		}
	}
	return g, nil
}

func (g *AbortConditions) parseCondition(text string) error {
	if name, value, ok := strings.Cut(text, ">="); ok {
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if strings.TrimSpace(name) != "requests" || err != nil || n < 1 || n > maxMinRequests {
			return fmt.Errorf("%.64q: >= is valid in requests>=N only, with N from 1\nhint: %s", text, grammarHint)
		}
		g.MinRequests = n
		return nil
	}
	name, value, ok := strings.Cut(text, "<")
	if !ok {
		return fmt.Errorf("%.64q has no <\nhint: %s", text, grammarHint)
	}
	r, err := parseRule(strings.TrimSpace(name), strings.TrimSpace(value))
	if err != nil {
		return err
	}
	for _, old := range g.Rules {
		if old.Metric == r.Metric && old.Quantile == r.Quantile && old.Relative == r.Relative {
			return fmt.Errorf("%s has two limits\nhint: keep the smaller one", name)
		}
	}
	if len(g.Rules) >= maxRules {
		return fmt.Errorf("more than %d rules", maxRules)
	}
	g.Rules = append(g.Rules, r)
	return nil
}

func parseRule(name, value string) (Rule, error) {
	r := Rule{}
	var known bool
	switch name {
	case "error_rate":
		r.Metric, known = ErrorRate, true
	case "refused_rate":
		r.Metric, known = RefusedRate, true
	default:
		r.Metric = TTFT
		r.Quantile, known = quantilesByName[name]
	}
	if !known {
		return r, fmt.Errorf("%.64q is not a figure that gateways report\nhint: %s", name, grammarHint)
	}
	wrong := fmt.Errorf("%s<%.64s is not a valid limit\nhint: %s", name, value, grammarHint)
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

// String returns the guard in the form that ParseConditions reads.
func (g AbortConditions) String() string {
	var parts []string
	for _, r := range g.Rules {
		parts = append(parts, r.String())
	}
	if g.MinRequests != DefaultMinRequests {
		parts = append(parts, "requests>="+strconv.FormatInt(g.MinRequests, 10))
	}
	return strings.Join(parts, ",")
}

// Name returns the name of the metric, with its quantile.
func (r Rule) Name() string {
	switch r.Metric {
	case ErrorRate:
		return "error_rate"
	case RefusedRate:
		return "refused_rate"
	}
	return "ttft_p" + strconv.Itoa(int(math.Round(r.Quantile*100)))
}

// String returns the rule in the form that ParseConditions reads.
func (r Rule) String() string {
	if r.Relative {
		return r.Name() + "<" + formatNumber(r.Limit) + "x"
	}
	return r.Name() + "<" + r.formatLimit(r.Limit)
}

// formatLimit formats a share or a time.
func (r Rule) formatLimit(v float64) string {
	if r.Metric != TTFT {
		return formatNumber(v*100) + "%"
	}
	return time.Duration(math.Round(v * float64(time.Second))).String()
}

// minSample returns the minimum sample: a hundred for the 99th percentile, because in a smaller sample one in a
// hundred is less than one request.
func (g AbortConditions) minSample(r Rule) int64 {
	if r.Metric != TTFT {
		return g.MinRequests
	}
	return max(g.MinRequests, int64(math.Ceil(1/(1-r.Quantile)-1e-9)))
}

// formatRounded formats a rounded amount.
func (r Rule) formatRounded(v float64) string {
	if r.Metric == TTFT {
		return time.Duration(v * float64(time.Second)).Round(100 * time.Microsecond).String()
	}
	return fmt.Sprintf("%.3g%%", v*100)
}

// formatNumber returns a short form that is exact enough to be parsed again.
func formatNumber(v float64) string { return strconv.FormatFloat(math.Round(v*1e9)/1e9, 'f', -1, 64) }
