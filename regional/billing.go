package regional

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/regional/usage"
)

// maxBilled bounds the pairs of tenant and model that metrics tell apart.
const maxBilled = 5000

// billing are the figures of who used what. Labels take values of the spec only.
type billing struct {
	requests, tokens, dollars, judged, bytes *prometheus.CounterVec
	pairs                                    *telemetry.Known[pair, *billed]
}

func newBilling(r prometheus.Registerer, g *Gateway) (*billing, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_regional_" + name, Help: help}, labels)
	}
	of := func(f func(*usage.Writer) float64) func() float64 {
		return func() float64 {
			if g.records == nil {
				return 0
			}
			return f(g.records)
		}
	}
	b := &billing{
		requests: counter("usage_requests_total", "Requests that used tokens, by tenant and the model that served.", "tenant", "model"),
		bytes:    counter("usage_bytes_total", "Bytes of what passes unread (gRPC calls, WebSockets and other paths), by tenant, model and direction (in from the client, out to it).", "tenant", "model", "direction"),
		tokens:   counter("usage_tokens_total", "Tokens used, by tenant, model and kind (prompt, of which cached, and completion).", "tenant", "model", "kind"),
		dollars:  counter("usage_cost_dollars_total", "Cost of what was used at the models' prices, by tenant and model.", "tenant", "model"),
		judged:   counter("tokens_judged_total", "JSON Web Tokens by how they were judged (verified, cached, or why not), and fetches of issuers' keys (fetched, fetch_failed).", "outcome"),
	}
	b.pairs = b.newPairs()
	var errs []error
	for _, c := range []prometheus.Collector{
		b.requests, b.tokens, b.dollars, b.judged, b.bytes,
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "spillway_regional_usage_records_lost_total", Help: "Usage records that found no room while the disk took none: their numbers are missing in the files.",
		}, of(func(w *usage.Writer) float64 { return float64(w.Lost()) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "spillway_regional_usage_records_written_total", Help: "Usage records on disk.",
		}, of(func(w *usage.Writer) float64 { return float64(w.Written()) })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "spillway_regional_usage_records_waiting", Help: "Usage records that are not on disk yet.",
		}, of(func(w *usage.Writer) float64 { return float64(w.Waiting()) })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "spillway_regional_leases_in_force", Help: "1 while the leader's leases of shared limits hold here; 0 while static shares do.",
		}, func() float64 {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.leases.InForce(time.Now()) {
				return 1
			}
			return 0
		}),
	} {
		errs = append(errs, r.Register(c))
	}
	return b, errors.Join(errs...)
}

func (m *metrics) tokenJudged(outcome string) { m.billing.judged.WithLabelValues(outcome).Inc() }

// bill books what a request used, once, when it has ended.
func (g *Gateway) bill(q *request) {
	u := &q.usage
	if q.model == nil || *u == (openai.Usage{}) && !q.passed.taken {
		return
	}
	micros := q.model.Price.Micros(u.Prompt, u.Cached, u.Completion)
	g.metrics.billing.count(q, micros)
	if g.records != nil {
		g.records.Add(usage.Record{
			At: time.Now().UTC(), Gateway: g.cfg.Name, Region: g.cfg.Region, Tenant: q.tenant.Name, Model: q.model.Name, Request: q.hop.RequestID,
			Prompt: u.Prompt, Cached: u.Cached, Completion: u.Completion, Micros: micros, Stated: u.Stated, ClientLeft: q.abandoned,
			Kind: q.passed.kind, BytesIn: q.passed.in, BytesOut: q.passed.out,
		})
	}
}

func (b *billing) count(q *request, micros int64) {
	x, u := b.pairs.Of(pair{q.tenant.Name, q.model.Name}), &q.usage
	x.requests.Inc()
	x.prompt.Add(float64(u.Prompt))
	x.cached.Add(float64(u.Cached))
	x.completion.Add(float64(u.Completion))
	x.dollars.Add(float64(micros) / 1e6)
	if q.passed.taken {
		b.bytes.WithLabelValues(x.of.tenant, x.of.model, "in").Add(float64(q.passed.in))
		b.bytes.WithLabelValues(x.of.tenant, x.of.model, "out").Add(float64(q.passed.out))
	}
}
