package regional

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/regional/routing"
)

// beginContext starts the attempt's context. For a request to a zone of this region the context provides an
// alternative zone.
func (p *gatewayAttempt) beginContext(ctx context.Context) {
	if p.route.Decision.IsSpilled() || p.q.hedged {
		p.ctx.StartUnder(ctx)
		return
	}
	p.hedgeQuery = p.q.query // a copy: the connector may use it late, when the request is already on its way elsewhere
	p.hedgeQuery.ExcludeEndpoint(p.route.Decision.Endpoint)
	p.hedgeQuery.Spill = false
	forward.StartWithAlternative(ctx, &p.ctx, p)
}

// AlternativeAddr implements forward.AlternativeProvider.
func (p *gatewayAttempt) AlternativeAddr() (addr string, ok bool) {
	d, ok := p.g.router.previewRoute(&p.hedgeQuery, time.Now(), nil)
	return d.Endpoint, ok && !d.IsSpilled() && d.Reason != routing.ReasonLastResort && d.Reason != routing.ReasonCold
}

func isConnectedElsewhere(err error) bool {
	if err == nil {
		return false
	}
	var e *forward.ConnectedElsewhere
	return errors.As(err, &e)
}
