package global

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// nodeMetrics are this tier's counters. The DNS counters are resolved in advance, so that counting an answer is one
// addition.
type nodeMetrics struct {
	answers       [len(qtypeNames)][len(rcodeNames)]prometheus.Counter
	dropped       prometheus.Counter
	stale         prometheus.Counter
	tcp           prometheus.Counter
	fast          prometheus.Counter
	limited       prometheus.Counter
	answerSeconds prometheus.Histogram
	redirects     *prometheus.CounterVec
	// refusedConns counts connections to the redirect endpoint that were closed, by reason.
	refusedConns *prometheus.CounterVec
	plans        *prometheus.CounterVec
	rollouts     *prometheus.CounterVec
	solveSeconds prometheus.Histogram
	uncounted    *prometheus.GaugeVec
}

var (
	qtypeNames = [...]string{"other", "A", "AAAA", "TXT", "SOA", "NS", "ANY"}
	rcodeNames = [...]string{"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "other"}
)

// qtypeIndex maps a query type (RFC 1035 section 3.2.2, RFC 3596) to the index of its name.
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

func newNodeMetrics(reg prometheus.Registerer, s *Server) *nodeMetrics {
	m := &nodeMetrics{
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_global_dns_dropped_total", Help: "DNS messages without an answer.",
		}),
		stale: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_global_dns_stale_answers_total", Help: "DNS answers from a state that no leader has confirmed recently.",
		}),
		tcp: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_global_dns_tcp_total", Help: "DNS answers over TCP and TLS.",
		}),
		fast: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_global_dns_fast_answers_total", Help: "DNS answers built on the fast path.",
		}),
		limited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_global_dns_limited_total", Help: "DNS answers over dns.rate: truncated, or not sent.",
		}),
		answerSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spillway_global_dns_answer_seconds", Help: "Time to build one DNS answer; on the fast path one sample per batch.", Buckets: telemetry.ShortBuckets(),
		}),
		redirects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_global_redirects_total", Help: "Requests to the redirect endpoint by outcome.",
		}, []string{"outcome"}),
		refusedConns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_global_http_refused_total", Help: "Connections of proxies to the redirect endpoint closed because of their PROXY header, by reason.",
		}, []string{"reason"}),
		plans: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_global_plans_total", Help: "Plans solved by this node as leader, by the reason to publish them or not.",
		}, []string{"reason"}),
		uncounted: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spillway_global_uncounted_tokens_per_second",
			Help: "Reported tokens/s of a region that plans ignore because they exceed its bounds, by kind: capacity or demand. 0 at nodes that do not lead.",
		}, []string{"region", "kind"}),
		rollouts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_global_staged_specs_total", Help: "Staged specs that the guard ended while this node led, by action: promote or rollback.",
		}, []string{"action"}),
		solveSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
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
		Name: "spillway_global_spec_staged", Help: "1 while a spec is staged.",
	}, func() float64 {
		if s.node.State().Rollout != nil {
			return 1
		}
		return 0
	})
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_global_leased_tenants", Help: "Shared limits in contention that this node leases to gateways while it leads.",
	}, func() float64 { return float64(s.quotaLeaser.listedTenants.Load()) }))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_global_leases_not_granted", Help: "Shared limits in contention without a lease because the maximum number of leases is reached: their gateways use static shares.",
	}, func() float64 { return float64(s.quotaLeaser.unleasedTenants.Load()) }))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_global_planning_blocked_seconds", Help: "How long this node, as leader, has solved no plan because a region's report is missing; 0: not blocked.",
	}, func() float64 { return s.planBlock.Load().blockedSeconds(time.Now()) }))
	if s.proxy != nil {
		s.proxy.registerMetrics(reg)
	}
	reg.MustRegister(onTrial, m.refusedConns, m.rollouts, m.uncounted, m.dropped, m.stale, m.tcp, m.fast, m.limited, m.answerSeconds, m.redirects, m.plans, m.solveSeconds, vec, &snapshotCollector{s: s})
	return m
}

func (m *nodeMetrics) observeDNS(e dns.QueryEvent) {
	n := float64(e.Count)
	if e.RateLimit != dns.RateLimitPassed {
		m.limited.Add(n)
	}
	if e.Rcode == dns.RcodeDropped || e.RateLimit == dns.RateLimitDropped {
		m.dropped.Add(n)
		return
	}
	m.answers[qtypeIndex(e.Qtype)][min(max(e.Rcode, 0), len(rcodeNames)-1)].Add(n)
	m.answerSeconds.Observe(e.Duration.Seconds())
	if e.Stale {
		m.stale.Add(n)
	}
	if e.Transport != dns.UDP {
		m.tcp.Add(n)
	}
	if e.FastPath {
		m.fast.Add(n)
	}
}

// snapshotCollector reads gauges from the current snapshot at each scrape.
type snapshotCollector struct{ s *Server }

var (
	descSpec      = prometheus.NewDesc("spillway_global_spec_version", "Version of the spec in force.", nil, nil)
	descPlan      = prometheus.NewDesc("spillway_global_plan_epoch", "Epoch of the plan in force.", nil, nil)
	descLeader    = prometheus.NewDesc("spillway_global_raft_leader", "1 at the leader.", nil, nil)
	descIndex     = prometheus.NewDesc("spillway_global_raft_applied_index", "Last Raft index applied.", nil, nil)
	descSummaries = prometheus.NewDesc("spillway_global_summaries_total", "Capacity reports received from gateways.", nil, nil)
	descRefused   = prometheus.NewDesc("spillway_global_refused_total", "Connections rejected: bad certificate or malformed data.", []string{"listener"}, nil)
	descRegion    = prometheus.NewDesc("spillway_global_region_up", "1 when clients may be sent to the region.", []string{"region", "state"}, nil)
	descAge       = prometheus.NewDesc("spillway_global_region_age_seconds", "Age of the newest report of the region.", []string{"region"}, nil)
	descObservers = prometheus.NewDesc("spillway_global_region_observers", "Global nodes that reach the region, including this one.", []string{"region"}, nil)
	descMeasured  = prometheus.NewDesc("spillway_global_measured_cells", "Cells whose RTT to at least one region was measured by its gateways.", nil, nil)
	descSigned    = prometheus.NewDesc("spillway_global_dnssec_signatures_total", "Signatures created, each for one RRset of the zone.", nil, nil)
	descUnsigned  = prometheus.NewDesc("spillway_global_dnssec_refused_total", "DNS answers that failed with SERVFAIL because too many different nonexistent names needed a signed denial.", nil, nil)
	descPhase     = prometheus.NewDesc("spillway_global_dnssec_phase", "1 for the current DNSSEC phase of the zone, as shown by spillway dnssec.", []string{"phase"}, nil)
	// Absent while too few clocks are known, unless the last comparison found this one wrong.
	descClock = prometheus.NewDesc("spillway_global_clock_ahead_seconds", "How far this node's wall clock is ahead of the median of the voters' clocks, negative when behind; absent while too few are known. The leader does nothing that depends on wall time while it is over 5 either way.", nil, nil)
	descWait  = prometheus.NewDesc("spillway_global_region_wait_seconds", "Predicted queue wait.", []string{"region", "service"}, nil)
)

// Describe sends nothing: regions and services come and go with the spec.
func (c *snapshotCollector) Describe(chan<- *prometheus.Desc) {}

// Collect reads the snapshot.
func (c *snapshotCollector) Collect(out chan<- prometheus.Metric) {
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
	count(descSummaries, c.s.summaries.summaryCount.Load())
	count(descRefused, c.s.parent.RefusedCount(), "uplink")
	count(descRefused, c.s.node.RefusedConns(), "raft")
	count(descSigned, c.s.signatures.Made())
	count(descUnsigned, c.s.signatures.Refused())
	if clock := c.s.clock.Load(); clock != nil && (clock.compared || clock.wrong) {
		put(descClock, clock.ahead.Seconds())
	}
	v := c.s.snapshot.Load()
	if v == nil {
		return
	}
	put(descPhase, 1, v.signingPhase())
	put(descSpec, float64(v.Version))
	put(descPlan, float64(v.state.PlanEpoch))
	put(descIndex, float64(v.state.Index))
	if v.RTTs != nil {
		put(descMeasured, float64(len(v.RTTs.ByCell)))
	}
	for r := range v.Regions {
		name, up := v.Spec.Regions[r].Name, 1.0
		if v.Drained.Has(r) || v.UnreachableByAll.Has(r) {
			up = 0
		}
		put(descRegion, up, name, v.RegionStateName(r))
		put(descObservers, float64(v.CountObservers(r)), name)
		if v.Regions[r].HasReport() {
			put(descAge, v.Regions[r].Group.Age.Seconds(), name)
		}
		for s := range v.Spec.Services {
			put(descWait, v.Regions[r].Waits[s], name, v.Spec.Services[s].Name)
		}
	}
}
