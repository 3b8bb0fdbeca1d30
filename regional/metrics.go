package regional

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// maxLabels bounds the values of tenant and model labels; they come from the spec alone.
const maxLabels = 1000

// metrics are the gateway's own figures. Labels take values of the spec only.
type metrics struct {
	requests, admissions, spills, retries, tokens, fallbacks *prometheus.CounterVec
	samples, doors                                           *prometheus.CounterVec
	resumes, hedges                                          *prometheus.CounterVec
	unkept                                                   prometheus.Counter
	ttft, duration                                           *prometheus.HistogramVec
	tenants, models                                          *telemetry.Labels
	billing                                                  *billing
	known                                                    knownMetrics
	spillMetrics
	throughMetrics
}

func newMetrics(r prometheus.Registerer, g *Gateway) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_regional_" + name, Help: help}, labels)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "spillway_regional_" + name, Help: help, Buckets: telemetry.WaitBuckets()}, []string{"model"})
	}
	m := &metrics{
		requests:     counter("requests_total", "Answers by model and status; 499 is a client that left.", "model", "status"),
		admissions:   counter("admissions_total", "Requests by tenant and outcome: admitted, or the code of the refusal.", "tenant", "outcome"),
		spills:       counter("spills_total", "Requests that went to a peer region, by region and reason.", "to", "reason"),
		retries:      counter("retries_total", "Second tries by what had happened.", "reason"),
		tokens:       counter("tokens_total", "Tokens of answers by model, class and kind (prompt, of which cached, and completion); source tells what engines stated from what was estimated.", "model", "class", "kind", "source"),
		fallbacks:    counter("fallbacks_total", "Requests that a model's fallback answered, by the model that was meant and the one that served.", "model", "served"),
		samples:      counter("rtt_samples_total", "Round trips read from clients' connections by outcome: taken, unplaced (the address has no place), implausible, proxied (it is a trusted proxy's), or dropped for haste.", "outcome"),
		doors:        counter("connections_refused_total", "Connections ended at the front door by reason: framing_* (a broken rule of HTTP/1.1), proxy_* (the PROXY header of a trusted proxy), http2_resets and http3_resets (streams reset in haste), http2_slow_heads (a head that did not come in limits.header_timeout), http3_crowd.", "reason"),
		hedges:       counter("connects_hedged_total", "Second connections to another zone because the first was slow, by whether the second was there first (won, lost).", "outcome"),
		ttft:         histogram("ttft_seconds", "Time from arrival to the first byte of the answer."),
		duration:     histogram("request_seconds", "Time from arrival to the last byte of the answer."),
		spillMetrics: newSpillMetrics(counter), throughMetrics: newThroughMetrics(counter),
		tenants: telemetry.NewLabels(maxLabels), models: telemetry.NewLabels(maxLabels),
	}
	m.known = m.newKnown()
	m.unkept = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "spillway_regional_directives_unkept_total", Help: "Directives that are in force and could not be written to disk: a restart without the global tier would not know them.",
	})
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	all := []prometheus.Collector{
		m.requests, m.admissions, m.spills, m.retries, m.tokens, m.fallbacks, m.samples, m.doors, m.tunnels, m.through, m.hedges, m.held, m.spillRefusals, m.guests, m.ttft, m.duration,
		m.unkept,
		gauge("spillway_regional_rtt_networks", "Client networks (/24 and /48) whose round trip is known.", func() float64 { return g.meter.networks() }),
		gauge("spillway_regional_http3_connections", "Open connections over HTTP/3.", func() float64 { return float64(g.front.open.http3()) }),
		gauge("spillway_regional_tunnels_open", "Open WebSockets.", func() float64 { return float64(g.tunnels.Len()) }),
		gauge("spillway_regional_in_flight", "Requests under way.", func() float64 { return float64(g.inFlight.Load()) }),
		gauge("spillway_regional_directive_age_seconds", "Age of the last directive; 0 before the first.", g.directiveAge),
		summaryAges{g},
	}
	all = append(all, g.bodies.Meters("spillway_regional_")...)
	var errs []error
	var err error
	m.resumes, err = newResumes(r, g)
	errs = append(errs, err)
	m.billing, err = newBilling(r, g)
	errs = append(errs, err)
	for _, c := range all {
		errs = append(errs, r.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("registering the gateway's metrics: %w", err)
	}
	return m, nil
}

func (g *Gateway) directiveAge() float64 {
	if st := g.state.Load(); st != nil && st.directive.Index > 0 {
		return time.Since(st.received).Seconds()
	}
	return 0
}

// refused counts an answer that was our own refusal.
func (m *metrics) refused(q *request, e *openai.Error) {
	tenant := ""
	if q != nil && q.tenant != nil {
		tenant = m.tenants.Value(q.tenant.Name)
	}
	m.admissions.WithLabelValues(tenant, e.Code).Inc()
	m.requests.WithLabelValues(m.model(q), strconv.Itoa(e.Status)).Inc()
}

// answered counts an answer that came from below.
func (m *metrics) answered(q *request, status int) {
	m.known.admitted.Of(m.tenants.Value(q.tenant.Name)).Inc()
	m.known.requests.Of(answerKey{m.model(q), status}).Inc()
}

func (m *metrics) finished(q *request, c choice, res relay.Result) {
	if c.verdict.Spilled() {
		m.spills.WithLabelValues(c.verdict.Path.Region, c.verdict.Reason).Inc()
	}
	m.known.duration.Of(m.model(q)).Observe(res.Done.Sub(q.arrived).Seconds())
}

func (m *metrics) firstByte(q *request) {
	m.known.ttft.Of(m.model(q)).Observe(time.Since(q.arrived).Seconds())
}

// used counts an answer's tokens.
func (m *metrics) used(q *request, u *openai.Usage) {
	model := m.model(q)
	for _, x := range [...]struct {
		kind string
		n    int
	}{{"prompt", u.Prompt}, {"cached", u.Cached}, {"completion", u.Completion}} {
		if x.n > 0 {
			m.known.tokens.Of(tokenKey{model, q.query.Class, x.kind, u.Source()}).Add(float64(x.n))
		}
	}
}

// turnedAway counts a connection that the front door ended. Reasons are constants.
func (m *metrics) turnedAway(reason string) { m.doors.WithLabelValues(reason).Inc() }

func (m *metrics) fellBack(meant, served string) {
	m.fallbacks.WithLabelValues(m.models.Value(meant), m.models.Value(served)).Inc()
}

func (m *metrics) model(q *request) string {
	if q == nil || q.model == nil {
		return ""
	}
	return m.models.Value(q.model.Name)
}

// summaryAges shows how old the news of each zone instance is.
type summaryAges struct{ g *Gateway }

func (s summaryAges) desc() *prometheus.Desc {
	return prometheus.NewDesc("spillway_regional_report_age_seconds", "Age of the newest statement, by zone instance.", []string{"scope"}, nil)
}

// Describe implements prometheus.Collector.
func (s summaryAges) Describe(ch chan<- *prometheus.Desc) { ch <- s.desc() }

// Collect implements prometheus.Collector.
func (s summaryAges) Collect(ch chan<- prometheus.Metric) {
	for _, l := range s.g.view.Load().Locals {
		ch <- prometheus.MustNewConstMetric(s.desc(), prometheus.GaugeValue, l.Age.Seconds(), l.Summary.Path.String())
	}
}
