package regional

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// cachedMetrics are the metrics that every request updates, cached by their label values.
type cachedMetrics struct {
	admitted       *telemetry.MemberCache[string, prometheus.Counter] // by tenant
	requests       *telemetry.MemberCache[answerKey, prometheus.Counter]
	tokens         *telemetry.MemberCache[tokenKey, prometheus.Counter]
	ttft, duration *telemetry.MemberCache[string, prometheus.Observer] // by model
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

func (m *gatewayMetrics) newCachedMetrics() cachedMetrics {
	return cachedMetrics{
		admitted: telemetry.NewMemberCache(func(tenant string) prometheus.Counter { return m.admissions.WithLabelValues(tenant, "admitted") }),
		requests: telemetry.NewMemberCache(func(k answerKey) prometheus.Counter {
			return m.requests.WithLabelValues(k.model, strconv.Itoa(k.status))
		}),
		tokens: telemetry.NewMemberCache(func(k tokenKey) prometheus.Counter {
			return m.tokens.WithLabelValues(k.model, k.class.String(), k.kind, k.source)
		}),
		ttft:     telemetry.NewMemberCache(func(model string) prometheus.Observer { return m.ttft.WithLabelValues(model) }),
		duration: telemetry.NewMemberCache(func(model string) prometheus.Observer { return m.duration.WithLabelValues(model) }),
	}
}

// billingKey identifies the usage of a tenant and model.
type billingKey struct{ tenant, model string }

// billingCounters are the usage counters of one billingKey.
type billingCounters struct {
	requests, prompt, cached, completion, dollars prometheus.Counter
	key                                           billingKey // the label values
}

// newBillingCounters distinguishes up to maxBillingKeys pairs; the others share one.
func (b *billingMetrics) newBillingCounters() *telemetry.MemberCache[billingKey, *billingCounters] {
	n := 0 // members are looked up one at a time
	return telemetry.NewMemberCache(func(p billingKey) *billingCounters {
		if n++; n > maxBillingKeys {
			p = billingKey{telemetry.OtherLabel, telemetry.OtherLabel}
		}
		tokens := func(kind string) prometheus.Counter { return b.tokens.WithLabelValues(p.tenant, p.model, kind) }
		return &billingCounters{
			requests: b.requests.WithLabelValues(p.tenant, p.model), dollars: b.dollars.WithLabelValues(p.tenant, p.model),
			prompt: tokens("prompt"), cached: tokens("cached"), completion: tokens("completion"), key: p,
		}
	})
}
