package regional

import (
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/regional/rtt"
)

// summaryReporter builds the summaries for the global tier.
type summaryReporter struct {
	region   string
	policy   *atomic.Pointer[gatewayPolicy]
	router   *sharedRouter
	tenants  *tenantGate
	stopping *atomic.Bool
	outcomes *outcomeCounter
	rtts     *rttSampler
	peerRTTs *rtt.PeerTable
}

// buildSummary builds a summary: the merged summaries of the zones, the clients' demand and their round-trip times.
func (r *summaryReporter) buildSummary(now time.Time) capacity.Summary {
	s := capacity.Summary{Models: r.router.mergeUsable(now).Models}
	s.Draining = r.stopping.Load() || r.policy.Load().isDrained(r.region, now)
	s.RTTs = r.peerRTTs.AppendReport(r.rtts.lastReport(), now)
	s.Outcomes = r.outcomes.reportOutcomes(now)
	r.tenants.fillSummary(&s, now)
	return capacity.FitToLimits(s)
}
