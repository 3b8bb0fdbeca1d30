package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

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
