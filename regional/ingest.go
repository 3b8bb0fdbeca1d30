package regional

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/debounce"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/regional/routing"
	"github.com/spillway-lb/spillway/regional/rtt"
)

// onSummary records a local instance's summary and releases the tickets that the summary already counts.
func (g *Gateway) onSummary(_ identity.ID, s *capacity.Summary) {
	if g.router.receiveSummary(s, time.Now()) {
		g.router.requestRebuild()
	}
}

func (g *Gateway) onLocalLost(_ identity.ID, p capacity.Path) {
	g.router.markUnreachable(p)
	g.router.requestRebuild()
	if g.child != nil {
		g.child.SummarizeNow()
	}
}

// runViewLoop builds views until ctx ends. Rebuilds are bounded, because up to a thousand local instances send ten
// summaries a second each, and a view covers all of them.
func (g *Gateway) runViewLoop(ctx context.Context) {
	debounce.RunOnChange(ctx, g.router.rebuildWanted, debounce.MinViewInterval, routing.RebuildInterval, g.rebuildViewAndSpec)
}

// rebuildViewAndSpec rebuilds the view that requests use.
func (g *Gateway) rebuildViewAndSpec(now time.Time) {
	g.router.rebuildView(now)
	g.policies.completeSpec(now)
}

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
