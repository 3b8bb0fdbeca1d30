package lab

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/sim"
)

// metric is a figure of a run that lines and tables can name.
type metric struct {
	name, title, unit string
	// less is set where less is better.
	less bool
	// of takes the figure out of a run. why is set where there is none, and v is then infinite where it would be longer than
	// any time.
	of func(r *sim.Result) (v float64, why string)
	// part takes it out of one tenant's or region's part; nil where parts do not have it.
	part func(p *sim.Part, window time.Duration) (v float64, why string)
}

// capacityName is the metric that is searched for and not measured by one run.
const capacityName = "capacity"

var metrics = allMetrics()

func allMetrics() []metric {
	out := []metric{
		{
			name: "goodput", title: "requests that met the SLO, per second", unit: "/s", of: func(r *sim.Result) (float64, string) { return r.Goodput, "" },
			part: func(p *sim.Part, window time.Duration) (float64, string) {
				return ratio(float64(p.Good), window.Seconds()), ""
			},
		},
		{
			name: "attainment", title: "part of all requests that met the SLO", unit: "%", of: func(r *sim.Result) (float64, string) { return r.Attainment, "" },
			part: func(p *sim.Part, _ time.Duration) (float64, string) {
				return part(float64(p.Good), float64(p.Counts.Sent), "nobody asked")
			},
		},
		{
			name: "throughput", title: "requests answered, per second", unit: "/s",
			of: func(r *sim.Result) (float64, string) {
				return ratio(float64(r.Measured.Completed), r.Window.Seconds()), ""
			},
			part: func(p *sim.Part, window time.Duration) (float64, string) {
				return ratio(float64(p.Counts.Completed), window.Seconds()), ""
			},
		},
		{
			name: "missed", title: "part of all requests that were refused, cut or not answered in time", unit: "%", less: true,
			of:   func(r *sim.Result) (float64, string) { return missed(&r.Measured) },
			part: func(p *sim.Part, _ time.Duration) (float64, string) { return missed(&p.Counts) },
		},
		{name: "hit_rate", title: "part of the prompts that was cached", unit: "%", of: func(r *sim.Result) (float64, string) {
			return part(float64(r.CachedTokens), float64(r.PromptTokens), "nothing was answered")
		}},
		{name: "imbalance", title: "busy time of the busiest worker over the mean", unit: "x", less: true, of: func(r *sim.Result) (float64, string) {
			return positive(r.Imbalance, "no worker did anything")
		}},
		{name: "output_rate", title: "tokens made per second", unit: "tok/s", of: func(r *sim.Result) (float64, string) { return r.OutputRate, "" }},
		{name: "prefill_rate", title: "prompt tokens processed per second", unit: "tok/s", of: func(r *sim.Result) (float64, string) { return r.PrefillRate, "" }},
		{
			name: "tokens_rate", title: "tokens of answered prompts and of answers, per second", unit: "tok/s",
			of: func(r *sim.Result) (float64, string) {
				return ratio(float64(r.PromptTokens+r.OutputTokens), r.Window.Seconds()), ""
			},
			part: func(p *sim.Part, window time.Duration) (float64, string) {
				return ratio(float64(p.Tokens), window.Seconds()), ""
			},
		},
		{name: "service_gap", title: "most that two tenants' service differs while both wait, in prompt tokens and twice the output tokens", unit: "tok", less: true, of: serviceGap},
		{name: "service_bound", title: "what fair queueing lets it be: twice the most that a batch of all engines costs", unit: "tok", of: serviceBound},
		{name: "recovery", title: "time after something broke or was mended until as many requests meet the SLO as before, for good", unit: "s", less: true, of: recovery},
		{name: "struck", title: "part of all requests that falls due at what breaks within ten seconds of that", unit: "%", less: true, of: struck},
		{name: "cost", title: "dollars per million output tokens", unit: "$", less: true, of: func(r *sim.Result) (float64, string) {
			return positive(r.PerMillion, "no token was made")
		}},
	}
	out = append(out, meterMetrics()...)
	for _, t := range []struct {
		name, title string
		of          func(*sim.Result) *sim.Dist
		part        func(*sim.Part) *sim.Dist
		whole       bool // counts what did not complete as longer than anything
	}{
		{"ttft", "time to first token", func(r *sim.Result) *sim.Dist { return &r.TTFT }, func(p *sim.Part) *sim.Dist { return &p.TTFT }, true},
		{"tpot", "mean time between an answer's tokens", func(r *sim.Result) *sim.Dist { return &r.TPOT }, func(p *sim.Part) *sim.Dist { return &p.TPOT }, false},
		{"itl", "time between two tokens", func(r *sim.Result) *sim.Dist { return &r.ITL }, nil, false},
		{"e2e", "time to last token", func(r *sim.Result) *sim.Dist { return &r.E2E }, func(p *sim.Part) *sim.Dist { return &p.E2E }, true},
		{"queued", "time before a worker was chosen", func(r *sim.Result) *sim.Dist { return &r.Queued }, nil, true},
	} {
		for _, q := range []struct {
			name string
			at   float64
		}{{"p50", .5}, {"p90", .9}, {"p95", .95}, {"p99", .99}, {"p999", .999}, {"mean", -1}} {
			m := metric{name: t.name + "_" + q.name, title: t.title + ", " + q.name, unit: "s", less: true}
			m.of = func(r *sim.Result) (float64, string) { return quantile(t.of(r), q.at, &r.Measured, t.whole) }
			if t.part != nil {
				m.part = func(p *sim.Part, _ time.Duration) (float64, string) {
					return quantile(t.part(p), q.at, &p.Counts, t.whole)
				}
			}
			out = append(out, m)
		}
	}
	return out
}

// capacityMetric describes the figure that a search finds.
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

// quantile is a time that this part of all requests stayed within. Requests that were not answered are longer than any
// that were, so a quantile that falls among them has no value.
func quantile(d *sim.Dist, q float64, c *sim.Counts, whole bool) (float64, string) {
	if d.Count() == 0 {
		if c.Completed > 0 {
			return 0, "no answer had two tokens"
		}
		return math.Inf(1), fmt.Sprintf("none of %d requests was answered%s", c.Sent, reasons(c))
	}
	if q < 0 {
		return d.Mean().Seconds(), ""
	}
	if whole && c.Sent > c.Completed {
		all := q * float64(c.Sent) / float64(c.Completed)
		if all > 1 {
			return math.Inf(1), fmt.Sprintf("%.2g %% of requests were not answered%s", 100*float64(c.Sent-c.Completed)/float64(c.Sent), reasons(c))
		}
		q = all
	}
	v, _ := d.Quantile(q)
	return v.Seconds(), ""
}

// reasons names why requests were not answered, the most frequent one.
func reasons(c *sim.Counts) string {
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

func missed(c *sim.Counts) (float64, string) {
	return part(float64(c.Sent-c.Completed), float64(c.Sent), "nobody asked")
}

func part(a, b float64, why string) (float64, string) {
	if b == 0 {
		return 0, why
	}
	return a / b, ""
}

func positive(v float64, why string) (float64, string) {
	if v <= 0 {
		return 0, why
	}
	return v, ""
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
