package global

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// metrics are this tier's counters. Those of DNS are resolved beforehand, so that counting an answer is one addition.
type metrics struct {
	answers   [len(qtypeNames)][len(rcodeNames)]prometheus.Counter
	dropped   prometheus.Counter
	stale     prometheus.Counter
	tcp       prometheus.Counter
	fast      prometheus.Counter
	limited   prometheus.Counter
	answer    prometheus.Histogram
	redirects *prometheus.CounterVec
	// turnedAway counts connections to the redirect endpoint that were ended, by reason.
	turnedAway *prometheus.CounterVec
	plans      *prometheus.CounterVec
	stages     *prometheus.CounterVec
	solve      prometheus.Histogram
	uncounted  *prometheus.GaugeVec
}

var (
	qtypeNames = [...]string{"other", "A", "AAAA", "TXT", "SOA", "NS", "ANY"}
	rcodeNames = [...]string{"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "other"}
)

// qtypeIndex maps a query type (RFC 1035 3.2.2, RFC 3596) to its name above.
func qtypeIndex(qtype uint16) int {
	switch qtype {
	case 1:
		return 1
	case 28:
		return 2
	case 16:
		return 3
	case 6:
		return 4
	case 2:
		return 5
	case 255:
		return 6
	}
	return 0
}

func newMetrics(reg prometheus.Registerer, s *Server) *metrics {
	m := &metrics{
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_global_dns_dropped_total", Help: "DNS messages that were given no answer.",
		}),
		stale: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_global_dns_stale_answers_total", Help: "DNS answers from a state that no leader confirms any more.",
		}),
		tcp: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_global_dns_tcp_total", Help: "DNS answers over TCP and TLS.",
		}),
		fast: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_global_dns_fast_answers_total", Help: "DNS answers that took the fast path.",
		}),
		limited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_global_dns_limited_total", Help: "DNS answers over the rate: truncated, or not sent.",
		}),
		answer: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spillway_global_dns_answer_seconds", Help: "Time to make one DNS answer, once for each batch on the fast path.", Buckets: telemetry.QuickBuckets(),
		}),
		redirects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_global_redirects_total", Help: "Calls to the redirect endpoint by outcome.",
		}, []string{"outcome"}),
		turnedAway: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_global_http_refused_total", Help: "Connections of proxies to the redirect endpoint that were ended, by what was wrong with their PROXY header.",
		}, []string{"reason"}),
		plans: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_global_plans_total", Help: "Plans made at this node while it led, by why they were published or not.",
		}, []string{"reason"}),
		uncounted: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spillway_global_uncounted_tokens_per_second",
			Help: "What a region reports beyond what plans count of it, by kind: capacity or demand. 0 at nodes that do not lead.",
		}, []string{"region", "kind"}),
		stages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_global_stages_total", Help: "Trials of specs that the guard ended while this node led: promote or rollback.",
		}, []string{"action"}),
		solve: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spillway_global_plan_solve_seconds", Help: "Time to solve one plan.", Buckets: telemetry.WaitBuckets(),
		}),
	}
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_global_dns_answers_total", Help: "DNS answers by query type and response code.",
	}, []string{"qtype", "rcode"})
	for q := range m.answers {
		for r := range m.answers[q] {
			m.answers[q][r] = vec.WithLabelValues(qtypeNames[q], rcodeNames[r])
		}
	}
	onTrial := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_global_stage_on_trial", Help: "1 while a spec is on trial.",
	}, func() float64 {
		if s.node.State().Stage != nil {
			return 1
		}
		return 0
	})
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_global_leased_tenants", Help: "Shared limits in contention that this node leases to gateways while it leads.",
	}, func() float64 { return float64(s.leaser.listed.Load()) }))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_global_leases_left_out", Help: "Shared limits in contention that found no room among the leases: their gateways keep static shares.",
	}, func() float64 { return float64(s.leaser.out.Load()) }))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_global_planning_blocked_seconds", Help: "How long this node, while it leads, has made no plan because it has no report of a region that counts; 0: nothing blocks it.",
	}, func() float64 { return s.planBlock.Load().seconds(time.Now()) }))
	if s.proxy != nil {
		s.proxy.register(reg)
	}
	reg.MustRegister(onTrial, m.turnedAway, m.stages, m.uncounted, m.dropped, m.stale, m.tcp, m.fast, m.limited, m.answer, m.redirects, m.plans, m.solve, vec, &viewCollector{s: s})
	return m
}

func (m *metrics) observe(e dns.Event) {
	n := float64(e.N)
	if e.Limited != dns.Unlimited {
		m.limited.Add(n)
	}
	if e.Rcode == dns.Dropped || e.Limited == dns.Withheld {
		m.dropped.Add(n)
		return
	}
	m.answers[qtypeIndex(e.Qtype)][min(max(e.Rcode, 0), len(rcodeNames)-1)].Add(n)
	m.answer.Observe(e.Dur.Seconds())
	if e.Stale {
		m.stale.Add(n)
	}
	if e.By != dns.UDP {
		m.tcp.Add(n)
	}
	if e.Fast {
		m.fast.Add(n)
	}
}

// viewCollector reads gauges off the current View when somebody looks.
type viewCollector struct{ s *Server }

var (
	descSpec      = prometheus.NewDesc("spillway_global_spec_version", "Version of the spec that answers are made from.", nil, nil)
	descPlan      = prometheus.NewDesc("spillway_global_plan_epoch", "Epoch of the plan that answers are made from.", nil, nil)
	descLeader    = prometheus.NewDesc("spillway_global_raft_leader", "1 at the leader.", nil, nil)
	descIndex     = prometheus.NewDesc("spillway_global_raft_applied_index", "Last Raft index applied.", nil, nil)
	descHeard     = prometheus.NewDesc("spillway_global_summaries_total", "Statements heard from gateways.", nil, nil)
	descRefuse    = prometheus.NewDesc("spillway_global_refused_total", "Connections refused for their certificate or their rubbish.", []string{"listener"}, nil)
	descRegion    = prometheus.NewDesc("spillway_global_region_up", "1 when clients may be sent to the region.", []string{"region", "state"}, nil)
	descAge       = prometheus.NewDesc("spillway_global_region_age_seconds", "Age of the region's freshest statement.", []string{"region"}, nil)
	descObservers = prometheus.NewDesc("spillway_global_region_observers", "Global nodes that hear the region, this one included.", []string{"region"}, nil)
	descMeasured  = prometheus.NewDesc("spillway_global_measured_cells", "Cells whose round trip to some region was measured by its gateways.", nil, nil)
	descSigned    = prometheus.NewDesc("spillway_global_dnssec_signatures_total", "Signatures that were made, each for one answer set of the zone.", nil, nil)
	descUnsigned  = prometheus.NewDesc("spillway_global_dnssec_refused_total", "DNS answers that failed because too many absent names had to be denied anew.", nil, nil)
	descPhase     = prometheus.NewDesc("spillway_global_dnssec_phase", "1 for the phase that the signing of the zone is in, as spillway dnssec shows it.", []string{"phase"}, nil)
	descWait      = prometheus.NewDesc("spillway_global_region_wait_seconds", "Predicted queue wait.", []string{"region", "service"}, nil)
)

// Describe says nothing beforehand: regions and services come and go with the spec.
func (c *viewCollector) Describe(chan<- *prometheus.Desc) {}

// Collect reads the View.
func (c *viewCollector) Collect(out chan<- prometheus.Metric) {
	put := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	leader := 0.0
	if c.s.node.IsLeader() {
		leader = 1
	}
	put(descLeader, leader)
	count(descHeard, c.s.ingest.count.Load())
	count(descRefuse, c.s.parent.Refused(), "uplink")
	count(descRefuse, c.s.node.Refused(), "raft")
	count(descSigned, c.s.signatures.Made())
	count(descUnsigned, c.s.signatures.Refused())
	v := c.s.view.Load()
	if v == nil {
		return
	}
	put(descPhase, 1, v.phase())
	put(descSpec, float64(v.version))
	put(descPlan, float64(v.state.PlanEpoch))
	put(descIndex, float64(v.state.Index))
	if v.near != nil {
		put(descMeasured, float64(len(v.near.cells)))
	}
	for r := range v.regions {
		name, up := v.spec.Regions[r].Name, 1.0
		if v.drained.Has(r) || v.gone.Has(r) {
			up = 0
		}
		put(descRegion, up, name, v.stateOf(r))
		put(descObservers, float64(v.observers(r)), name)
		if v.regions[r].heard {
			put(descAge, v.regions[r].group.Age.Seconds(), name)
		}
		for s := range v.spec.Services {
			put(descWait, v.regions[r].wait[s], name, v.spec.Services[s].Name)
		}
	}
}
