package regional

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// knownMetrics are those that every request counts in, by what tells their members apart.
type knownMetrics struct {
	admitted       *telemetry.Known[string, prometheus.Counter] // by tenant
	requests       *telemetry.Known[answerKey, prometheus.Counter]
	tokens         *telemetry.Known[tokenKey, prometheus.Counter]
	ttft, duration *telemetry.Known[string, prometheus.Observer] // by model
}

type (
	answerKey struct {
		model  string
		status int
	}
	tokenKey struct {
		model        string
		class        spec.Class
		kind, source string
	}
)

func (m *metrics) newKnown() knownMetrics {
	return knownMetrics{
		admitted: telemetry.NewKnown(func(tenant string) prometheus.Counter { return m.admissions.WithLabelValues(tenant, "admitted") }),
		requests: telemetry.NewKnown(func(k answerKey) prometheus.Counter {
			return m.requests.WithLabelValues(k.model, strconv.Itoa(k.status))
		}),
		tokens: telemetry.NewKnown(func(k tokenKey) prometheus.Counter {
			return m.tokens.WithLabelValues(k.model, k.class.String(), k.kind, k.source)
		}),
		ttft:     telemetry.NewKnown(func(model string) prometheus.Observer { return m.ttft.WithLabelValues(model) }),
		duration: telemetry.NewKnown(func(model string) prometheus.Observer { return m.duration.WithLabelValues(model) }),
	}
}

// pair is who used what.
type pair struct{ tenant, model string }

// billed are the counters of a pair.
type billed struct {
	requests, prompt, cached, completion, dollars prometheus.Counter
	of                                            pair // as its labels say
}

// newPairs tells so many pairs apart as are allowed; the others share one.
func (b *billing) newPairs() *telemetry.Known[pair, *billed] {
	n := 0 // members are found one at a time
	return telemetry.NewKnown(func(p pair) *billed {
		if n++; n > maxBilled {
			p = pair{telemetry.OtherLabel, telemetry.OtherLabel}
		}
		tokens := func(kind string) prometheus.Counter { return b.tokens.WithLabelValues(p.tenant, p.model, kind) }
		return &billed{
			requests: b.requests.WithLabelValues(p.tenant, p.model), dollars: b.dollars.WithLabelValues(p.tenant, p.model),
			prompt: tokens("prompt"), cached: tokens("cached"), completion: tokens("completion"), of: p,
		}
	})
}
