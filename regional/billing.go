package regional

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/regional/billing"
)

// maxBillingKeys bounds the number of (tenant, model) pairs that the metrics distinguish.
const maxBillingKeys = 5000

// billingMetrics are the usage metrics per tenant and model. Label values come from the spec only.
type billingMetrics struct {
	requests, tokens, dollars, tokenChecks, bytes *prometheus.CounterVec
	counters                                      *telemetry.MemberCache[billingKey, *billingCounters]
}

func newBillingMetrics(r prometheus.Registerer, g *Gateway) (*billingMetrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_regional_" + name, Help: help}, labels)
	}
	of := func(f func(*billing.Writer) float64) func() float64 {
		return func() float64 {
			if g.usageWriter == nil {
				return 0
			}
			return f(g.usageWriter)
		}
	}
	b := &billingMetrics{
		requests:    counter("usage_requests_total", "Requests that used tokens, by tenant and the model that served.", "tenant", "model"),
		bytes:       counter("usage_bytes_total", "Bytes of requests that are not parsed (gRPC, WebSockets and other paths), by tenant, model and direction (in: from the client, out: to it).", "tenant", "model", "direction"),
		tokens:      counter("usage_tokens_total", "Tokens used, by tenant, model and kind (prompt, of which cached, and completion).", "tenant", "model", "kind"),
		dollars:     counter("usage_cost_dollars_total", "Cost of the usage at the models' prices, in dollars, by tenant and model.", "tenant", "model"),
		tokenChecks: counter("jwt_verifications_total", "Verifications of JSON Web Tokens by outcome (verified, cached, or the reason of the refusal), and fetches of issuers' keys (fetched, fetch_failed).", "outcome"),
	}
	b.counters = b.newBillingCounters()
	var errs []error
	for _, c := range []prometheus.Collector{
		b.requests, b.tokens, b.dollars, b.tokenChecks, b.bytes,
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "spillway_regional_usage_records_lost_total", Help: "Usage records that found no room while the disk took none: their numbers are missing in the files.",
		}, of(func(w *billing.Writer) float64 { return float64(w.Lost()) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "spillway_regional_usage_records_written_total", Help: "Usage records on disk.",
		}, of(func(w *billing.Writer) float64 { return float64(w.Written()) })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "spillway_regional_usage_records_waiting", Help: "Usage records that are not on disk yet.",
		}, of(func(w *billing.Writer) float64 { return float64(w.Waiting()) })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "spillway_regional_leases_in_force", Help: "1 while the leader's leases of shared limits hold here; 0 while static shares do.",
		}, func() float64 {
			if g.tenants.hasLeases(time.Now()) {
				return 1
			}
			return 0
		}),
	} {
		errs = append(errs, r.Register(c))
	}
	return b, errors.Join(errs...)
}

// usageRecorder records what requests used.
type usageRecorder struct {
	gateway, region string
	metrics         *billingMetrics
	writer          *billing.Writer // nil: no records are written
}

// recordUsage writes the usage of a request once, when the request has ended.
func (r *usageRecorder) recordUsage(q *gatewayRequest) {
	u := &q.usage
	if q.model == nil || *u == (openai.TokenUsage{}) && !q.passthrough.accepted {
		return
	}
	micros := q.model.Price.CostMicros(u.Prompt, u.Cached, u.Completion)
	r.metrics.countUsage(q, micros)
	if r.writer != nil {
		r.writer.AddRecord(billing.UsageRecord{
			At: time.Now().UTC(), Gateway: r.gateway, Region: r.region, Tenant: q.tenant.Name, Model: q.model.Name, Request: q.hop.RequestID,
			Prompt: u.Prompt, Cached: u.Cached, Completion: u.Completion, Micros: micros, Stated: u.Stated, ClientLeft: q.abandoned,
			Kind: q.passthrough.kind, BytesIn: q.passthrough.bytesIn, BytesOut: q.passthrough.bytesOut,
		})
	}
}

func (b *billingMetrics) countUsage(q *gatewayRequest, micros int64) {
	x, u := b.counters.FindMember(billingKey{q.tenant.Name, q.model.Name}), &q.usage
	x.requests.Inc()
	x.prompt.Add(float64(u.Prompt))
	x.cached.Add(float64(u.Cached))
	x.completion.Add(float64(u.Completion))
	x.dollars.Add(float64(micros) / 1e6)
	if q.passthrough.accepted {
		b.bytes.WithLabelValues(x.key.tenant, x.key.model, "in").Add(float64(q.passthrough.bytesIn))
		b.bytes.WithLabelValues(x.key.tenant, x.key.model, "out").Add(float64(q.passthrough.bytesOut))
	}
}
