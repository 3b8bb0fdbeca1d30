package experiment

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/sim"
)

// metric is a figure of a run that assertions and tables can name.
type metric struct {
	name, title, unit string
	// lowerIsBetter is set if less is better.
	lowerIsBetter bool
	// ofRun computes the figure of a run. why is the reason if there is none; v is then infinite if it would be
	// longer than any time.
	ofRun func(r *sim.RunResult) (v float64, why string)
	// ofPart computes it for one tenant's or region's part; nil if parts do not have it.
	ofPart func(p *sim.Breakdown, window time.Duration) (v float64, why string)
}

// capacityName is the metric that is searched for, not measured in one run.
const capacityName = "capacity"

var metrics = allMetrics()

func allMetrics() []metric {
	out := []metric{
		{
			name: "goodput", title: "requests that met the SLO, per second", unit: "/s", ofRun: func(r *sim.RunResult) (float64, string) { return r.Goodput, "" },
			ofPart: func(p *sim.Breakdown, window time.Duration) (float64, string) {
				return ratioOrZero(float64(p.Good), window.Seconds()), ""
			},
		},
		{
			name: "attainment", title: "part of all requests that met the SLO", unit: "%", ofRun: func(r *sim.RunResult) (float64, string) { return r.Attainment, "" },
			ofPart: func(p *sim.Breakdown, _ time.Duration) (float64, string) {
				return shareOf(float64(p.Good), float64(p.Counts.Sent), "there were no requests")
			},
		},
		{
			name: "throughput", title: "requests answered, per second", unit: "/s",
			ofRun: func(r *sim.RunResult) (float64, string) {
				return ratioOrZero(float64(r.Measured.Completed), r.Window.Seconds()), ""
			},
			ofPart: func(p *sim.Breakdown, window time.Duration) (float64, string) {
				return ratioOrZero(float64(p.Counts.Completed), window.Seconds()), ""
			},
		},
		{
			name: "missed", title: "part of all requests that were refused, cut or not answered in time", unit: "%", lowerIsBetter: true,
			ofRun:  func(r *sim.RunResult) (float64, string) { return missedShare(&r.Measured) },
			ofPart: func(p *sim.Breakdown, _ time.Duration) (float64, string) { return missedShare(&p.Counts) },
		},
		{name: "hit_rate", title: "part of the prompts that was cached", unit: "%", ofRun: func(r *sim.RunResult) (float64, string) {
			return shareOf(float64(r.CachedTokens), float64(r.PromptTokens), "nothing was answered")
		}},
		{name: "imbalance", title: "busy time of the busiest worker over the mean", unit: "x", lowerIsBetter: true, ofRun: func(r *sim.RunResult) (float64, string) {
			return requirePositive(r.Imbalance, "no worker did anything")
		}},
		{name: "output_rate", title: "tokens made per second", unit: "tok/s", ofRun: func(r *sim.RunResult) (float64, string) { return r.OutputRate, "" }},
		{name: "prefill_rate", title: "prompt tokens processed per second", unit: "tok/s", ofRun: func(r *sim.RunResult) (float64, string) { return r.PrefillRate, "" }},
		{
			name: "tokens_rate", title: "tokens of answered prompts and of answers, per second", unit: "tok/s",
			ofRun: func(r *sim.RunResult) (float64, string) {
				return ratioOrZero(float64(r.PromptTokens+r.OutputTokens), r.Window.Seconds()), ""
			},
			ofPart: func(p *sim.Breakdown, window time.Duration) (float64, string) {
				return ratioOrZero(float64(p.Tokens), window.Seconds()), ""
			},
		},
		{name: "service_gap", title: "most that two tenants' service differs while both wait, in prompt tokens and twice the output tokens", unit: "tok", lowerIsBetter: true, ofRun: maxServiceGap},
		{name: "service_bound", title: "what fair queueing lets it be: twice the most that a batch of all engines costs", unit: "tok", ofRun: serviceBound},
		{name: "recovery", title: "time after a fault was injected or cleared until as many requests meet the SLO as before, for good", unit: "s", lowerIsBetter: true, ofRun: recoveryTime},
		{name: affectedName, title: "part of all requests that are due at the target of a fault within its first ten seconds", unit: "%", lowerIsBetter: true, ofRun: affectedShare},
		{name: "cost", title: "dollars per million output tokens", unit: "$", lowerIsBetter: true, ofRun: func(r *sim.RunResult) (float64, string) {
			return requirePositive(r.DollarsPerMillion, "no token was made")
		}},
	}
	out = append(out, meterMetrics()...)
	for _, t := range []struct {
		name, title string
		of          func(*sim.RunResult) *sim.Distribution
		part        func(*sim.Breakdown) *sim.Distribution
		whole       bool // counts what did not complete as longer than anything
	}{
		{"ttft", "time to first token", func(r *sim.RunResult) *sim.Distribution { return &r.TTFT }, func(p *sim.Breakdown) *sim.Distribution { return &p.TTFT }, true},
		{"tpot", "mean time between an answer's tokens", func(r *sim.RunResult) *sim.Distribution { return &r.TPOT }, func(p *sim.Breakdown) *sim.Distribution { return &p.TPOT }, false},
		{"itl", "time between two tokens", func(r *sim.RunResult) *sim.Distribution { return &r.ITL }, nil, false},
		{"e2e", "time to last token", func(r *sim.RunResult) *sim.Distribution { return &r.E2E }, func(p *sim.Breakdown) *sim.Distribution { return &p.E2E }, true},
		{"queued", "time before a worker was chosen", func(r *sim.RunResult) *sim.Distribution { return &r.QueueTime }, nil, true},
	} {
		for _, q := range []struct {
			name string
			at   float64
		}{{"p50", .5}, {"p90", .9}, {"p95", .95}, {"p99", .99}, {"p999", .999}, {"mean", -1}} {
			m := metric{name: t.name + "_" + q.name, title: t.title + ", " + q.name, unit: "s", lowerIsBetter: true}
			m.ofRun = func(r *sim.RunResult) (float64, string) { return quantileOf(t.of(r), q.at, &r.Measured, t.whole) }
			if t.part != nil {
				m.ofPart = func(p *sim.Breakdown, _ time.Duration) (float64, string) {
					return quantileOf(t.part(p), q.at, &p.Counts, t.whole)
				}
			}
			out = append(out, m)
		}
	}
	return out
}

// capacityMetric describes the result of a search.
var capacityMetric = metric{name: capacityName, title: "greatest value that meets the SLO"}

func findMetric(name string) (*metric, bool) {
	if name == capacityName {
		return &capacityMetric, true
	}
	i := slices.IndexFunc(metrics, func(m metric) bool { return m.name == name })
	if i < 0 {
		return nil, false
	}
	return &metrics[i], true
}

func metricNames() []string {
	out := []string{capacityName}
	for i := range metrics {
		out = append(out, metrics[i].name)
	}
	return out
}

// quantileOf is the time that a fraction of all requests stayed within. Requests without an answer count as longer
// than any with one, so a quantile among them has no value.
func quantileOf(d *sim.Distribution, q float64, c *sim.RequestCounts, whole bool) (float64, string) {
	if d.Count() == 0 {
		if c.Completed > 0 {
			return 0, "no answer had two tokens"
		}
		return math.Inf(1), fmt.Sprintf("none of %d requests was answered%s", c.Sent, mainRefusalReason(c))
	}
	if q < 0 {
		return d.Mean().Seconds(), ""
	}
	if whole && c.Sent > c.Completed {
		all := q * float64(c.Sent) / float64(c.Completed)
		if all > 1 {
			return math.Inf(1), fmt.Sprintf("%.2g %% of requests were not answered%s", 100*float64(c.Sent-c.Completed)/float64(c.Sent), mainRefusalReason(c))
		}
		q = all
	}
	v, _ := d.Quantile(q)
	return v.Seconds(), ""
}

// mainRefusalReason is the most frequent reason why requests were not answered.
func mainRefusalReason(c *sim.RequestCounts) string {
	best, n := "", int64(0)
	for code, k := range c.Reasons {
		if k > n || k == n && code < best {
			best, n = code, k
		}
	}
	switch {
	case best != "" && n >= c.Cut && n >= c.Unfinished:
		return ", most of them refused with " + strings.ReplaceAll(best, "_", " ")
	case c.Unfinished > c.Cut:
		return ", most of them still under way at the end"
	case c.Cut > 0:
		return ", most of them cut"
	}
	return ""
}

func missedShare(c *sim.RequestCounts) (float64, string) {
	return shareOf(float64(c.Sent-c.Completed), float64(c.Sent), "there were no requests")
}

func shareOf(a, b float64, why string) (float64, string) {
	if b == 0 {
		return 0, why
	}
	return a / b, ""
}

func requirePositive(v float64, why string) (float64, string) {
	if v <= 0 {
		return 0, why
	}
	return v, ""
}

func ratioOrZero(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// outputTokenWeight is the weight of an output token, in prompt tokens.
const outputTokenWeight = 2

// serviceReceived is a tenant's service by the measure of virtual token counters (VTC, OSDI'24): prompt tokens that
// had to be computed, and twice the output tokens.
func serviceReceived(s *sim.TenantService) float64 {
	return float64(s.PromptTokens) + outputTokenWeight*float64(s.OutputTokens)
}

// maxServiceGap is the largest difference of two tenants' service in any interval in which both had requests waiting
// all the time.
func maxServiceGap(r *sim.RunResult) (float64, string) {
	tenants, most, found := 0, 0.0, false
	for i := range r.Series {
		tenants = max(tenants, len(r.Series[i].Tenants))
	}
	for a := range tenants {
		for b := range a {
			gap, ok := pairServiceGap(r.Series, a, b)
			most, found = max(most, gap), found || ok
		}
	}
	if !found {
		return 0, "no two tenants waited at the same time"
	}
	return most, ""
}

// pairServiceGap is that of two tenants. found is false if they never both waited for two samples in a row.
func pairServiceGap(series []sim.FleetSample, a, b int) (gap float64, found bool) {
	low, high, n := math.Inf(1), math.Inf(-1), 0
	for i := range series {
		t := series[i].Tenants
		if max(a, b) >= len(t) || t[a].Waiting == 0 || t[b].Waiting == 0 {
			low, high, n = math.Inf(1), math.Inf(-1), 0
			continue
		}
		d := serviceReceived(&t[a]) - serviceReceived(&t[b])
		low, high = min(low, d), max(high, d)
		if n++; n > 1 {
			gap, found = max(gap, high-low), true
		}
	}
	return gap, found
}

// serviceBound is the bound of it with one queue for all engines: 2 U (VTC's theorem 4.4), where U is the longest
// prompt or twice the tokens that all engines' batches hold, whichever is more. With a single queue no
// synchronization error is added. It is wide if batches take much of the engines' time: no order of requests can
// exceed it in short intervals.
func serviceBound(r *sim.RunResult) (float64, string) {
	return requirePositive(2*max(float64(r.LongestPrompt), outputTokenWeight*float64(r.KVTokens)), "no engine reports the size of its cache")
}
