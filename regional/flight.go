package regional

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/regional/zone"
)

const (
	// sureLost is how long a place must have been seen lost before anything there is given up: a gateway that was itself
	// paused finds every statement old, and the fresh ones still unread.
	sureLost = 200 * time.Millisecond
	// deadSilence is how long a stream may be silent once its place is lost. A place that is cut off from telemetry alone
	// goes on sending, and its streams go on.
	deadSilence = 2 * time.Second
	// hopeless is how long a request waits for a lost place when it cannot go anywhere else.
	hopeless = time.Minute
	// maxReaped bounds what one look gives up, so that the loss of a full zone does not hold the lock.
	maxReaped = 256
)

// errLost is why an attempt at a place that is no longer heard from is given up.
var errLost = fmt.Errorf("%w: nothing is heard from it any more", relay.ErrGivenUp)

// place is one endpoint that has attempts under way. The gateway's lock guards it, except heard.
type place struct {
	flights   map[*passage]struct{}
	lostSince time.Time    // zero while it is not lost
	heard     atomic.Int64 // when the last byte came from it, in nanoseconds since the gateway's start; 0: none yet
}

// depart books an attempt under way, so that it can be given up from outside.
func (g *Gateway) depart(p *passage, cancel context.CancelCauseFunc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.places[p.c.verdict.Endpoint]
	if at == nil {
		at = &place{flights: map[*passage]struct{}{}}
		g.places[p.c.verdict.Endpoint] = at
	}
	p.place, p.cancel, p.sent = at, cancel, time.Now()
	g.settleIn(p.q, &p.c.verdict) // not before: what is refused after all has left nothing there
	at.flights[p] = struct{}{}
	if g.ending.Load() {
		cancel(errEnding)
	}
}

// land books an attempt out. The caller holds the lock.
func (g *Gateway) land(p *passage) {
	if p.place == nil {
		return
	}
	delete(p.place.flights, p)
	if e := p.c.verdict.Endpoint; len(p.place.flights) == 0 && g.places[e] == p.place {
		delete(g.places, e)
	}
}

// reap gives up attempts at places that are lost: what has no byte yet goes elsewhere within the retry budget, and a
// stream that has fallen silent is ended. A place is lost when nobody speaks for it: no local's statement and, for a
// peer's gateway, no directive. A connection that failed says less: the others to the same place may be well. The caller
// holds the lock.
func (g *Gateway) reap(v *zone.View, heard func(endpoint string) bool, now time.Time) {
	left := maxReaped
	for endpoint, at := range g.places {
		if heard(endpoint) {
			at.lostSince = time.Time{}
			continue
		}
		if at.lostSince.IsZero() {
			at.lostSince = now
		}
		if now.Sub(at.lostSince) < sureLost {
			continue
		}
		for p := range at.flights {
			if left == 0 {
				return
			}
			if p.doomed {
				continue
			}
			left--
			if g.isHopeless(p, v, now) {
				p.doomed = true
				p.cancel(errLost)
			}
		}
	}
}

// isHopeless decides for one attempt at a lost place.
func (g *Gateway) isHopeless(p *passage, v *zone.View, now time.Time) bool {
	if heard := p.heard.Load(); heard != 0 {
		return now.Sub(g.started)-time.Duration(heard) > deadSilence
	}
	quiet := later(p.place.lostSince, p.sent)
	if heard := p.place.heard.Load(); heard != 0 {
		quiet = later(quiet, g.started.Add(time.Duration(heard)))
	}
	switch silence := now.Sub(quiet); {
	case silence > hopeless:
		return true
	case silence < sureLost || p.q.hop.RetriesLeft == 0 || !g.servedElsewhere(p, v, now):
		return false
	}
	p.q.paid = g.budget.Take(now)
	return p.q.paid
}

// servedElsewhere reports whether a place that is well would take the request over.
func (g *Gateway) servedElsewhere(p *passage, v *zone.View, now time.Time) bool {
	q := p.q.query
	q.Exclude[1], q.Exclude[0] = q.Exclude[0], p.c.verdict.Endpoint
	verdict, ok := zone.Choose(&q, v, now, g.rng, nil)
	return ok && verdict.Reason != zone.ReasonLastResort
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
