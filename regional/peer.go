package regional

import (
	"net/http"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/paths"
	"github.com/spillway-lb/spillway/regional/demand"
	"github.com/spillway-lb/spillway/regional/routing"
)

// servePeerRequest handles requests of other regions' gateways. The connection's certificate has identified the
// gateway.
func (g *gatewayServer) servePeerRequest(w http.ResponseWriter, r *http.Request) {
	q := &gatewayRequest{arrived: time.Now(), policy: g.policy.Load(), fromPeer: true, path: r.URL.RequestURI(), trace: g.tracer.BeginHTTPRequest(r.Header)}
	var ok bool
	if q.shape, ok = paths.MatchPath(paths.HTTP, r.URL, g.extraPaths()); !ok || r.Method != http.MethodPost {
		g.refuseRequest(w, q, paths.NotFoundError(r.URL.Path))
		return
	}
	if g.inFlight.Add(1) > int64(g.cfg.MaxStreams) {
		g.inFlight.Add(-1)
		g.refuseRequest(w, q, openai.NoCapacity("another request", defaultRetryAfter))
		q.finishTrace(r)
		return
	}
	j := requestLoop{g: g, w: w, r: r, q: q, release: func() { g.inFlight.Add(-1) }}
	defer j.settleUnlessFollowed()
	if e := g.admitSpilled(w, r, q); e != nil {
		if e.Code != openai.CodeNoCapacity { // counted with its reason
			g.metrics.spilledIn.WithLabelValues(e.Code).Inc()
		}
		g.refuseRequest(w, q, e)
		return
	}
	j.startAttempts()
}

// admitSpilled admits or refuses a spilled request by its headers, before its body is sent: the sender waits for
// 100 Continue.
func (g *gatewayServer) admitSpilled(w http.ResponseWriter, r *http.Request, q *gatewayRequest) *openai.Error {
	if !q.policy.isReady() {
		return openai.NotReady()
	}
	var err error
	if q.hop, err = forward.ParseHop(r.Header); err != nil {
		return openai.InvalidJSON("the sending gateway's headers: " + err.Error())
	}
	q.hop.Hops = max(q.hop.Hops, 1)
	q.tenant, q.model = q.policy.spec.FindTenant(q.hop.Tenant), q.policy.spec.FindModel(q.hop.Model)
	switch {
	case q.tenant == nil:
		return openai.InvalidAPIKey()
	case q.model == nil:
		return openai.ModelNotFound(q.hop.Model, nil)
	case !q.policy.spec.PermitsRegion(q.tenant, q.policy.region):
		return openai.ResidencyDenied(g.cfg.Region)
	}
	q.admitted = time.Now()
	q.query = routing.RouteQuery{RequestID: q.hop.RequestID, Tenant: q.tenant.Name, Model: q.model.Name, PromptTokens: q.hop.PromptTokens, Class: q.hop.Class, Residency: q.tenant.Residency, Regions: q.tenant.Regions, Hops: q.hop.Hops}
	if q.hop.Prefix != 0 {
		q.query.Prefix = append(q.promptKeys.prefixBuf[:0], q.hop.Prefix)
	}
	if why := g.whyRefuseSpilled(q, demand.OutputLimit(q.model, q.hop.MaxTokens), time.Now()); why != "" {
		g.metrics.spilledIn.WithLabelValues(why).Inc()
		return openai.NoCapacity(q.model.Name, defaultRetryAfter)
	}
	g.metrics.spilledIn.WithLabelValues("admitted").Inc()
	var e *openai.Error
	if q.raw, e = g.bodyBounds(q, q.hop.Deadline).ReadBody(w, r); e != nil {
		return e
	}
	q.body = openai.NewEditedBody(q.raw)
	if e = q.scanEnvelope(r); e == nil {
		g.computePromptKeys(q, r.Header)
	}
	return e
}

// whyRefuseSpilled returns why a request of another region is refused, or "". limit is its longest output.
func (g *gatewayServer) whyRefuseSpilled(q *gatewayRequest, limit int, now time.Time) string {
	q.query.MaxTokens = g.tenants.expectedOutput(q.model.Name, limit)
	q.assignPool()
	why := g.router.whyRefuseSpilled(&q.query, q.hop.SpillWithin, q.model.TTFT.ForClass(q.query.Class), now)
	if g.stopping.Load() {
		return routing.SpillInNoRoom
	}
	return why
}

// promptKeys holds the prefix hashes of a request's prompt.
type promptKeys struct {
	prefixBuf [capacity.MaxLandmarks]uint64
}

// computePromptKeys computes the prefix hashes of a request's prompt and its session key. If the client names no
// session, the beginning of its prompt identifies it: the next turn of a conversation begins with the earlier
// turns.
func (g *gatewayServer) computePromptKeys(q *gatewayRequest, h http.Header) {
	secret := q.policy.prefixSeed
	if v := g.router.view.Load(); q.noGeneratedText || secret == 0 || len(v.Locals)+len(v.Peers) < 2 {
		return
	}
	owner := q.policy.spec.PrefixOwner(q.tenant.Name)
	q.query.Prefix = capacity.AppendLandmarks(q.promptKeys.prefixBuf[:0], secret, owner, q.model.Name, q.env.Prompt)
	name := h.Get(forward.HeaderClientSession)
	if name == "" {
		name = q.env.User
	}
	if name != "" {
		d := xxhash.NewWithSeed(secret)
		_, _ = d.WriteString(q.tenant.Name)
		_, _ = d.WriteString("\x00" + q.model.Name + "\x00")
		_, _ = d.WriteString(name)
		q.query.Session = max(1, d.Sum64())
	}
}
