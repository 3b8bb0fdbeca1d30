package local

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// cachedSeries caches the series of metrics that every request updates, by their labels.
type cachedSeries struct {
	requests *telemetry.MemberCache[attemptKey, prometheus.Counter]
	waits    *telemetry.MemberCache[waitKey, prometheus.Observer]
	ttft     *telemetry.MemberCache[string, prometheus.Observer]
	tokens   *telemetry.MemberCache[tokenKey, prometheus.Counter]
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

func (m *agentMetrics) newCachedSeries() cachedSeries {
	return cachedSeries{
		requests: telemetry.NewMemberCache(func(k attemptKey) prometheus.Counter { return m.attempts.WithLabelValues(k.model, k.outcome) }),
		waits:    telemetry.NewMemberCache(func(k waitKey) prometheus.Observer { return m.queueWaits.WithLabelValues(k.model, k.class.String()) }),
		ttft:     telemetry.NewMemberCache(func(model string) prometheus.Observer { return m.ttft.WithLabelValues(model) }),
		tokens: telemetry.NewMemberCache(func(k tokenKey) prometheus.Counter {
			return m.tokens.WithLabelValues(k.model, k.class.String(), k.kind, k.source)
		}),
	}
}
