package regional

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/regional/zone"
)

// hedging has a transport make its connections so that another zone's may be tried beside one that is slow.
func (g *Gateway) hedging(t *http.Transport) *http.Transport {
	g.connect = &relay.Connector{
		Most: g.cfg.HedgeConnect,
		Dial: relay.DialTLS(t.DialContext, t.TLSClientConfig, t.TLSHandshakeTimeout),
		Hedged: func(won bool) {
			outcome := "lost"
			if won {
				outcome = "won"
			}
			g.metrics.hedges.WithLabelValues(outcome).Inc()
		},
	}
	t.DialTLSContext = g.connect.DialContext
	return t
}

// beside begins an attempt's context. For a request to a zone of ours it names another that would do as well.
func (g *Gateway) beside(ctx context.Context, p *passage) {
	if p.c.verdict.Spilled() || p.q.hedged {
		p.ctx.Begin(ctx)
		return
	}
	p.query = p.q.query // whoever asks may ask late, when the request's own is on its way elsewhere
	p.query.Exclude[1], p.query.Exclude[0] = p.query.Exclude[0], p.c.verdict.Endpoint
	p.query.Spill = false
	relay.BeginWithAlternative(ctx, &p.ctx, p)
}

// Alternative implements relay.Alternative.
func (p *passage) Alternative() (addr string, ok bool) {
	g := p.g
	v := g.view.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	verdict, ok := zone.Choose(&p.query, v, time.Now(), g.rng, nil)
	return verdict.Endpoint, ok && !verdict.Spilled() && verdict.Reason != zone.ReasonLastResort && verdict.Reason != zone.ReasonCold
}

// moved says that another zone's connection was there first, so that the request goes there. Nothing was sent, and no
// retry is spent.
func (q *request) moved(c choice, res *relay.Result) bool {
	if q.hedged || !outrun(res.Err) {
		return false
	}
	q.hedged = true
	q.shun(c.verdict.Endpoint)
	return true
}

func outrun(err error) bool {
	if err == nil {
		return false
	}
	var e *relay.Elsewhere
	return errors.As(err, &e)
}
