package regional

import (
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/accesslog"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/regional/routing"
)

// accessNote is what the access log needs of a request besides what its other fields have.
type accessNote struct {
	method, path string // of the request; the path without the query
	status       int    // of the response, 0: none yet
	code         string // of the error that this gateway sent
	broken       bool   // the response broke off after its first byte
	route        string // as in the response's head, with the worker
	decision     string // region/zone of the last attempt
	reason       string // of the last routing decision
	firstByteAt  time.Time
}

// noteResponse records the response of a tier below.
func (q *gatewayRequest) noteResponse(d *routing.RouteDecision, status int, broken bool) {
	q.access.status, q.access.broken, q.access.reason = status, broken, d.Reason
	if q.access.route == "" {
		q.access.decision = d.Path.String()
	}
}

// logAccess writes the access line of a client's request when it has ended. The gateway that a client called writes it, not the
// one that a request was spilled to.
func (g *gatewayServer) logAccess(q *gatewayRequest, r *http.Request) {
	if g.accessLog == nil || q.fromPeer {
		return
	}
	if !q.client.IsValid() { // refused before its client was of interest
		q.client = g.auth.clientAddr(r)
	}
	now, a, u := time.Now(), &q.access, &q.usage
	line := accesslog.Record{
		Arrived: q.arrived, RequestID: q.hop.RequestID, Client: q.client, Method: a.method, Path: a.path, Class: classOf(q),
		Status: a.status, Code: a.code, Broken: a.broken, Route: a.route, Reason: a.reason, Retried: q.retryCause, Spilled: q.spilled,
		PromptTokens: u.Prompt, CachedTokens: u.Cached, CompletionTokens: u.Completion, Estimated: u.Prompt > 0 && !u.Stated,
		BytesIn: q.passthrough.bytesIn, BytesOut: q.passthrough.bytesOut, Duration: now.Sub(q.arrived),
	}
	if line.Route == "" {
		line.Route = a.decision
	}
	if q.tenant != nil {
		line.Tenant = q.tenant.Name
	}
	if q.model != nil {
		line.Model = q.model.Name
	}
	if !a.firstByteAt.IsZero() {
		line.FirstByte = a.firstByteAt.Sub(q.arrived)
	}
	g.accessLog.AddRecord(&line)
}

// logUnroutedAccess writes the access line of a request that no tier below gets, such as a list of models or an unknown path.
func (g *gatewayServer) logUnroutedAccess(r *http.Request, id string, arrived time.Time, e *openai.Error) {
	if g.accessLog == nil {
		return
	}
	line := accesslog.Record{
		Arrived: arrived, RequestID: id, Client: g.auth.clientAddr(r), Method: r.Method, Path: r.URL.Path, Status: http.StatusOK, Duration: time.Since(arrived),
	}
	if e != nil {
		line.Status, line.Code = e.Status, e.Code
	}
	g.accessLog.AddRecord(&line)
}

// classOf returns the request's class, "" before it is known.
func classOf(q *gatewayRequest) string {
	if q.model == nil {
		return ""
	}
	return q.query.Class.String()
}

// routeOf returns the route in a response's head, which this gateway or the zone has set.
func routeOf(head http.Header) string { return forward.FirstValue(head, forward.HeaderRoute) }

// logEnd records the end of a request in the log of decisions and in the access log, and ends its trace.
func (g *gatewayServer) logEnd(q *gatewayRequest, r *http.Request) {
	g.router.logRequestEnd(q, time.Now())
	g.logAccess(q, r)
	q.finishTrace(r)
}

// outcomeName returns how the request ended, as the log of decisions has it.
func (q *gatewayRequest) outcomeName() string {
	switch a := &q.access; {
	case a.status == statusClientGone:
		return "client_gone"
	case a.broken:
		return "broken"
	case a.code != "" && q.attempts == 0:
		return "refused"
	case a.status/100 != 2:
		return "failed"
	}
	return "served"
}
