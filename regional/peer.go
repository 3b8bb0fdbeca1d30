package regional

import (
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/paths"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/regional/zone"
)

// servePeer is the door for other regions' gateways. The connection's certificate has said that it is one.
func (g *Gateway) servePeer(w http.ResponseWriter, r *http.Request) {
	q := &request{arrived: time.Now(), state: g.state.Load(), peer: true, path: r.URL.RequestURI()}
	var ok bool
	if q.shape, ok = paths.Find(paths.HTTP, r.URL, g.extraPaths()); !ok || r.Method != http.MethodPost {
		g.refuse(w, q, noSuchPath(r.URL.Path))
		return
	}
	if g.inFlight.Add(1) > int64(g.cfg.MaxStreams) {
		g.inFlight.Add(-1)
		g.refuse(w, q, openai.NoCapacity("another request", defaultRetryAfter))
		return
	}
	j := journey{g: g, w: w, r: r, q: q, over: func() { g.inFlight.Add(-1) }}
	defer j.pause()
	if e := g.admitPeer(w, r, q); e != nil {
		if e.Code != openai.CodeNoCapacity { // counted with its reason
			g.metrics.guests.WithLabelValues(e.Code).Inc()
		}
		g.refuse(w, q, e)
		return
	}
	j.dispatch()
}

// admitPeer judges a spilled request by its headers, before its body is sent: the sender waits for our word.
func (g *Gateway) admitPeer(w http.ResponseWriter, r *http.Request, q *request) *openai.Error {
	if !q.state.ready() {
		return openai.NotReady()
	}
	var err error
	if q.hop, err = relay.ParseHop(r.Header); err != nil {
		return openai.InvalidJSON("the sending gateway's headers: " + err.Error())
	}
	q.hop.Hops = max(q.hop.Hops, 1)
	q.tenant, q.model = q.state.spec.Tenant(q.hop.Tenant), q.state.spec.ModelNamed(q.hop.Model)
	switch {
	case q.tenant == nil:
		return openai.InvalidAPIKey()
	case q.model == nil:
		return openai.ModelNotFound(q.hop.Model, nil)
	case !q.state.spec.Permits(q.tenant, q.state.home):
		return openai.Residency(g.cfg.Region)
	}
	q.admitted = time.Now()
	q.query = zone.Query{Model: q.model.Name, PromptTokens: q.hop.PromptTokens, Class: q.hop.Class, Residency: q.tenant.Residency, Regions: q.tenant.Regions, Hops: q.hop.Hops}
	if q.hop.Prefix != 0 {
		q.query.Prefix = append(q.marks.room[:0], q.hop.Prefix)
	}
	if why := g.noRoom(q, outputLimit(q.model, q.hop.MaxTokens), time.Now()); why != "" {
		g.metrics.guests.WithLabelValues(why).Inc()
		return openai.NoCapacity(q.model.Name, defaultRetryAfter)
	}
	g.metrics.guests.WithLabelValues("admitted").Inc()
	var e *openai.Error
	if q.raw, e = g.bodyBounds(q, q.hop.Deadline).Read(w, r); e != nil {
		return e
	}
	q.body = openai.WordingOf(q.raw)
	if e = q.scan(r); e == nil {
		g.recognise(q, r.Header)
	}
	return e
}

// Why a guest is not let in.
const (
	guestNoRoom = "no_room"        // no zone of ours that is well can take it inside a time that anybody would wait
	guestAtHome = "sooner_at_home" // by what its gateway says it is better off there
)

// noRoom says why a request of another region is not let in; empty when it is. A guest is not taken as a last resort, nor
// to wait longer here than it would at home: the sender went by what was known of us a while ago, and we know better.
func (g *Gateway) noRoom(q *request, limit int, now time.Time) string {
	v := g.view.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	q.query.MaxTokens = g.demand.expected(q.model.Name, limit)
	q.assign()
	q.query.Ledger = g.ledger
	verdict, ok := zone.Choose(&q.query, v, now, g.rng, nil)
	within := q.hop.SpillWithin.Seconds()
	switch {
	case !ok, verdict.Reason == zone.ReasonLastResort, v.Drained, g.stopping.Load(),
		verdict.Seconds > guestPatience*q.model.TTFT.Of(q.query.Class).Seconds():
		return guestNoRoom
	case within > 0 && verdict.Cost() > within:
		return guestAtHome
	}
	return ""
}

// guestPatience is how many times its class's target a guest that could be served nowhere else may have to wait here.
const guestPatience = 10
