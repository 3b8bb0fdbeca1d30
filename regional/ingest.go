package regional

import (
	"context"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/debounce"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/regional/routing"
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
