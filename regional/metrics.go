package regional

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/regional/routing"
)

// maxLabels bounds the number of tenant and model labels; they come from the spec only.
const maxLabels = 1000

// gatewayMetrics are the gateway's own metrics. Label values come from the spec only.
type gatewayMetrics struct {
	requests, admissions, spills, retries, tokens, fallbacks *prometheus.CounterVec
	rttSamples, connectionsRefused                           *prometheus.CounterVec
	resumes, hedges                                          *prometheus.CounterVec
	persistFailures                                          prometheus.Counter
	ttft, duration                                           *prometheus.HistogramVec
	tenants, models                                          *telemetry.BoundedLabel
	billing                                                  *billingMetrics
	cached                                                   cachedMetrics
	spillMetrics
	passthroughMetrics
}

func newGatewayMetrics(r prometheus.Registerer, g *Gateway) (*gatewayMetrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_regional_" + name, Help: help}, labels)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "spillway_regional_" + name, Help: help, Buckets: telemetry.WaitBuckets()}, []string{"model"})
	}
	m := &gatewayMetrics{
		requests:           counter("requests_total", "Responses by model and status; 499: the client disconnected.", "model", "status"),
		admissions:         counter("admissions_total", "Requests by tenant and outcome: admitted, or the error code.", "tenant", "outcome"),
		spills:             counter("spills_total", "Requests spilled to a peer region, by region and reason.", "to", "reason"),
		retries:            counter("retries_total", "Requests retried at another zone or region, by reason of the failure.", "reason"),
		tokens:             counter("tokens_total", "Tokens by model, class and kind (prompt, of which cached, and completion); source separates counts of the engine from estimates.", "model", "class", "kind", "source"),
		fallbacks:          counter("fallbacks_total", "Requests served by a fallback model, by requested model and serving model.", "model", "served"),
		rttSamples:         counter("rtt_samples_total", "RTT samples of client connections by outcome: taken, unplaced (the address has no location), implausible, proxied (a trusted proxy's connection), or dropped (rate limit).", "outcome"),
		connectionsRefused: counter("connections_refused_total", "Connections closed at the public listener by reason: framing_* (HTTP/1.1 protocol violation), proxy_* (PROXY header of a trusted proxy), http2_resets and http3_resets (too many stream resets), http2_slow_heads (header not complete within limits.header_timeout), http3_crowd (too many connections).", "reason"),
		hedges:             counter("connects_hedged_total", "Hedged connections to another zone because the first was slow, by outcome of the second: won or lost.", "outcome"),
		ttft:               histogram("ttft_seconds", "Time from arrival to the first byte of the response."),
		duration:           histogram("request_seconds", "Time from arrival to the last byte of the response."),
		spillMetrics:       newSpillMetrics(counter), passthroughMetrics: newPassthroughMetrics(counter),
		tenants: telemetry.NewBoundedLabel(maxLabels), models: telemetry.NewBoundedLabel(maxLabels),
	}
	m.cached = m.newCachedMetrics()
	m.persistFailures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "spillway_regional_directive_persist_failures_total", Help: "Directives in force that could not be written to disk: a restart while the global tier is unreachable loses them.",
	})
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	all := []prometheus.Collector{
		m.requests, m.admissions, m.spills, m.retries, m.tokens, m.fallbacks, m.rttSamples, m.connectionsRefused, m.tunnels, m.passthroughRequests, m.hedges, m.spillsHeld, m.spillRefusals, m.spilledIn, m.ttft, m.duration,
		m.persistFailures,
		gauge("spillway_regional_rtt_networks", "Client networks (/24 and /48) with a measured RTT.", func() float64 { return g.rttSampler.countNetworks() }),
		gauge("spillway_regional_http3_connections", "Open connections over HTTP/3.", func() float64 { return float64(g.clientListener.public.http3Connections()) }),
		gauge("spillway_regional_tunnels_open", "Open WebSockets.", func() float64 { return float64(g.server.tunnels.Len()) }),
		gauge("spillway_regional_in_flight", "Requests in flight.", func() float64 { return float64(g.server.inFlight.Load()) }),
		gauge("spillway_regional_directive_age_seconds", "Age of the last directive; 0 before the first.", g.policies.directiveAge),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "spillway_regional_access_lines_dropped_total", Help: "Lines of the access log that were not written: too many waited for the disk, or it failed.",
		}, func() float64 { return float64(g.server.accessLog.Dropped()) }),
		summaryAgeCollector{g.router},
	}
	all = append(all, g.server.bodyMemory.Collectors("spillway_regional_")...)
	var errs []error
	var err error
	m.resumes, err = newResumeCounter(r, g.server.textStore)
	errs = append(errs, err)
	m.billing, err = newBillingMetrics(r, g)
	errs = append(errs, err)
	for _, c := range all {
		errs = append(errs, r.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("registering the gateway's metrics: %w", err)
	}
	return m, nil
}

func (m *gatewayMetrics) countTokenCheck(outcome string) {
	m.billing.tokenChecks.WithLabelValues(outcome).Inc()
}

// countRefused counts a refusal of this gateway.
func (m *gatewayMetrics) countRefused(q *gatewayRequest, e *openai.Error) {
	tenant := ""
	if q != nil && q.tenant != nil {
		tenant = m.tenants.BoundValue(q.tenant.Name)
	}
	m.admissions.WithLabelValues(tenant, e.Code).Inc()
	m.requests.WithLabelValues(m.modelLabel(q), strconv.Itoa(e.Status)).Inc()
}

// countAnswered counts a response of a tier below.
func (m *gatewayMetrics) countAnswered(q *gatewayRequest, status int) {
	m.cached.admitted.FindMember(m.tenants.BoundValue(q.tenant.Name)).Inc()
	m.cached.requests.FindMember(answerKey{m.modelLabel(q), status}).Inc()
}

func (m *gatewayMetrics) observeFinished(q *gatewayRequest, d *routing.RouteDecision, res forward.Result) {
	if d.IsSpilled() {
		m.spills.WithLabelValues(d.Path.Region, d.Reason).Inc()
	}
	m.cached.duration.FindMember(m.modelLabel(q)).Observe(res.DoneAt.Sub(q.arrived).Seconds())
}

func (m *gatewayMetrics) observeFirstByte(q *gatewayRequest) {
	m.cached.ttft.FindMember(m.modelLabel(q)).Observe(time.Since(q.arrived).Seconds())
}

// describeTraffic returns the spills and the times to the first byte since the start.
func (m *gatewayMetrics) describeTraffic() *admin.TrafficCounts {
	if m == nil {
		return nil
	}
	return &admin.TrafficCounts{
		TTFT: admin.ToLatencyCounts(telemetry.ReadHistograms(m.ttft, "model")), Spills: admin.ToSpillCounts(telemetry.ReadCounters(m.spills, "to")),
	}
}

// countTokens counts a response's tokens.
func (m *gatewayMetrics) countTokens(q *gatewayRequest, u *openai.TokenUsage) {
	model := m.modelLabel(q)
	for _, x := range [...]struct {
		kind string
		n    int
	}{{"prompt", u.Prompt}, {"cached", u.Cached}, {"completion", u.Completion}} {
		if x.n > 0 {
			m.cached.tokens.FindMember(tokenKey{model, q.query.Class, x.kind, u.Source()}).Add(float64(x.n))
		}
	}
}

// countRefusedConnection counts a connection that the public listener closed. Reasons are constants.
func (m *gatewayMetrics) countRefusedConnection(reason string) {
	m.connectionsRefused.WithLabelValues(reason).Inc()
}

func (m *gatewayMetrics) countFallback(meant, served string) {
	m.fallbacks.WithLabelValues(m.models.BoundValue(meant), m.models.BoundValue(served)).Inc()
}

func (m *gatewayMetrics) modelLabel(q *gatewayRequest) string {
	if q == nil || q.model == nil {
		return ""
	}
	return m.models.BoundValue(q.model.Name)
}

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
