package local

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// knownMeters are the metrics that every request counts in, by what tells their members apart.
type knownMeters struct {
	requests *telemetry.Known[attemptKey, prometheus.Counter]
	waits    *telemetry.Known[waitKey, prometheus.Observer]
	ttft     *telemetry.Known[string, prometheus.Observer]
	tokens   *telemetry.Known[tokenKey, prometheus.Counter]
}

type (
	attemptKey struct{ model, outcome string }
	waitKey    struct {
		model string
		class spec.Class
	}
	tokenKey struct {
		model        string
		class        spec.Class
		kind, source string
	}
)

func (m *meters) newKnown() knownMeters {
	return knownMeters{
		requests: telemetry.NewKnown(func(k attemptKey) prometheus.Counter { return m.requests.WithLabelValues(k.model, k.outcome) }),
		waits:    telemetry.NewKnown(func(k waitKey) prometheus.Observer { return m.waits.WithLabelValues(k.model, k.class.String()) }),
		ttft:     telemetry.NewKnown(func(model string) prometheus.Observer { return m.ttft.WithLabelValues(model) }),
		tokens: telemetry.NewKnown(func(k tokenKey) prometheus.Counter {
			return m.tokens.WithLabelValues(k.model, k.class.String(), k.kind, k.source)
		}),
	}
}
