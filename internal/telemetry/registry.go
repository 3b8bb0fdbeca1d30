// Package telemetry contains what the logs and metrics of all tiers have in common: keys of log attributes, a registry with
// the identity of the node, histogram buckets that are comparable across tiers, labels with a bounded number of values,
// earlier names of renamed metrics, and a throttle for repeated log lines.
package telemetry

import (
	"log/slog"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
)

// NewRegistry returns a registry with the metrics of the Go runtime and the process, and spillway_build_info, which identifies
// the node. Nodes in one process have separate registries.
func NewRegistry(tier, node, version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "spillway_build_info", Help: "Always 1; the labels identify the node and its version.",
		ConstLabels: prometheus.Labels{"tier": tier, "node": node, "version": version, "go": runtime.Version()},
	})
	info.Set(1)
	r.MustRegister(info)
	return r
}

// WaitBuckets returns histogram buckets for latencies of requests, from a local hop to a long queue, in seconds.
func WaitBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
}

// ShortBuckets returns histogram buckets for short CPU work, such as building a DNS answer, in seconds.
func ShortBuckets() []float64 {
	return []float64{2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2.5e-4, 1e-3, 1e-2}
}

// earlierNames maps renamed metrics to their earlier names, which are exposed too until the next release. The map is emptied
// at each release.
var earlierNames = map[string]string{
	"spillway_global_leases_not_granted":                 "spillway_global_leases_left_out",
	"spillway_global_raft_not_member":                    "spillway_global_raft_outside",
	"spillway_global_raft_unreachable_voters":            "spillway_global_raft_silent_voters",
	"spillway_global_spec_staged":                        "spillway_global_stage_on_trial",
	"spillway_global_staged_specs_total":                 "spillway_global_stages_total",
	"spillway_local_batch_pending_requests":              "spillway_local_batch_riding",
	"spillway_local_directive_persist_failures_total":    "spillway_local_directives_unkept_total",
	"spillway_local_requests_waiting_for_model_load":     "spillway_local_waitingfor_load",
	"spillway_local_worker_conflicts_total":              "spillway_local_worker_clashes_total",
	"spillway_local_worker_kv_blocks_dropped_total":      "spillway_local_worker_kv_forgotten_total",
	"spillway_local_worker_kv_matches_total":             "spillway_local_worker_kv_claims_total",
	"spillway_regional_directive_persist_failures_total": "spillway_regional_directives_unkept_total",
	"spillway_regional_passthrough_requests_total":       "spillway_regional_through_total",
	"spillway_regional_spilled_in_total":                 "spillway_regional_guests_total",
	"spillway_regional_jwt_verifications_total":          "spillway_regional_tokens_judged_total",
}

// WithEarlierNames returns a gatherer that exposes renamed metrics under their earlier names too.
func WithEarlierNames(g prometheus.Gatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := g.Gather()
		for _, f := range families {
			earlier, ok := earlierNames[f.GetName()]
			if !ok {
				continue
			}
			help := "deprecated: use " + f.GetName() + "; removed in the next release"
			families = append(families, &dto.MetricFamily{Name: &earlier, Help: &help, Type: f.Type, Unit: f.Unit, Metric: f.Metric})
		}
		return families, err
	})
}

// Keys of log attributes, the same in all tiers.
const (
	KeyTier       = "tier"
	KeyNode       = "node"
	KeyRegion     = "region"
	KeyZone       = "zone"
	KeyWorker     = "worker"
	KeyService    = "service"
	KeyModel      = "model"
	KeyTenant     = "tenant"
	KeyRequest    = "request"
	KeyPeer       = "peer"
	KeyActor      = "actor"
	KeyError      = "error"
	KeySuppressed = "suppressed" // number of equal lines that were not written
)

// LoggerOrDiscard returns l, or a logger that discards everything if l is nil.
func LoggerOrDiscard(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}

// ErrorAttr returns the log attribute of an error.
func ErrorAttr(err error) slog.Attr { return slog.Any(KeyError, err) }
