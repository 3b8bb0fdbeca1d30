package regional

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/routing"
)

// admitRequest runs every check that can refuse the request before an endpoint is chosen, the cheapest first.
func (g *gatewayServer) admitRequest(w http.ResponseWriter, r *http.Request, q *gatewayRequest) *openai.Error {
	q.policy = g.policy.Load()
	if !q.policy.isReady() {
		return openai.NotReady()
	}
	var e *openai.Error
	if q.tenant, q.path, q.client, e = g.auth.authenticateClient(r, q.policy); e != nil {
		return e
	}
	if !q.policy.spec.PermitsRegion(q.tenant, q.policy.region) {
		return openai.ResidencyDenied(g.cfg.Region)
	}
	svc, e := q.policy.requestedService(r.Host)
	if e != nil {
		return e
	}
	if e = g.tenants.enterRequest(q, w.Header()); e != nil {
		return e
	}
	if q.raw, e = g.bodyBounds(q, deadlineOf(r.Header)).ReadBody(w, r); e != nil {
		return e
	}
	if e = q.scanEnvelope(r); e != nil {
		return e
	}
	if name := forward.TakeModelRewrite(r.Header); name != "" && !q.shape.ModelInPath() {
		q.env.Model = name
	}
	if svc != nil {
		q.service = svc.Name
	}
	if e = g.resolveModel(r, q, svc); e != nil {
		return e
	}
	if e = q.fillQuery(r.Header); e != nil {
		return e
	}
	g.computePromptKeys(q, r.Header)
	return g.chargeTenant(w, q)
}

// scanEnvelope reads the envelope. The tensors of an inference request are left to the engine.
func (q *gatewayRequest) scanEnvelope(r *http.Request) *openai.Error {
	q.noGeneratedText = !q.shape.GeneratesText() && q.shape != openai.ShapeEmbeddings
	if q.shape.ModelInPath() {
		q.inferPath = r.URL.EscapedPath()
		_, q.pathQuery, _ = strings.Cut(q.path, "?")
	}
	return forward.ReadEnvelope(q.shape, r, q.raw, &q.env)
}

// estimatePromptTokens estimates the tokens of the prompt. Tensors count as text of the same length.
func (q *gatewayRequest) estimatePromptTokens() int {
	if q.kind != forward.Buffered {
		return max(1, int(float64(q.replay.BufferedBytes())/q.model.BytesPerToken))
	}
	if q.shape == openai.ShapeInfer {
		return max(1, int(float64(len(q.raw))/q.model.BytesPerToken))
	}
	return q.env.EstimateTokens(q.model.BytesPerToken)
}

// fillQuery fills the routing query from the envelope and the client's headers.
func (q *gatewayRequest) fillQuery(h http.Header) *openai.Error {
	prompt := q.estimatePromptTokens()
	if asked, over := q.env.ExceedsOutputLimit(q.model.OutputLimit); over && !q.noGeneratedText {
		return openai.OutputTooLong(asked, q.model.OutputLimit)
	}
	if limit := q.model.MaxContext; limit > 0 && !q.noGeneratedText && routing.MinPromptTokens(prompt)+q.env.MaxTokens > limit {
		return openai.ContextTooLong(prompt+q.env.MaxTokens, limit)
	}
	class, deadline, e := readClassAndDeadline(h, q.tenant.Class, q.policy.spec)
	if e != nil {
		return e
	}
	q.query = routing.RouteQuery{
		RequestID: q.hop.RequestID, Tenant: q.tenant.Name,
		Model: q.model.Name, PromptTokens: prompt, ExpectContinue: len(q.raw) >= expectContinueSize, Class: class, Residency: q.tenant.Residency, Regions: q.tenant.Regions,
		Spill: q.policy.spec.Routing.Spill == nil || *q.policy.spec.Routing.Spill, Margin: time.Duration(q.policy.spec.Routing.SpillMargin),
	}
	q.hop.Flow, q.hop.TellEndpoint = forward.FairnessFlow(h, q.tenant), q.tenant.Trusted
	q.hop.Tenant, q.hop.Class, q.hop.Model, q.hop.Deadline = q.tenant.Name, class, q.model.Name, deadline
	q.hop.PromptTokens, q.hop.MaxTokens = prompt, q.env.MaxTokens
	q.hop.AskUsage = q.policy.spec.Routing.RequestsUsage() && q.env.MayRequestUsage() // the local tier checks whether the path supports it
	return nil
}

// readClassAndDeadline reads the class and the deadline that a client requests. The class must not be more urgent
// than the tenant's own. The TTFT target is only validated here; the local tier uses it for its queue order.
func readClassAndDeadline(h http.Header, own spec.Class, s *spec.Spec) (class spec.Class, deadline time.Duration, e *openai.Error) {
	class = own
	c, named, err := forward.RequestedClass(h, s)
	if err != nil {
		return class, 0, headerError(forward.HeaderClientClass, err.Error())
	}
	if named {
		class = max(own, c)
	}
	t, e := forward.ReadSLO(h)
	return class, t.Deadline, e
}

func headerError(name, message string) *openai.Error {
	return &openai.Error{
		Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: openai.CodeInvalidValue, Param: name,
		Message: name + ": " + message, NoRetry: true,
	}
}

// bodyBounds returns the limits of a request's body. deadline is the client's own, counted from the request's
// arrival; 0 means none.
func (g *gatewayServer) bodyBounds(q *gatewayRequest, deadline time.Duration) forward.BodyLimits {
	q.charge = g.bodyMemory.NewCharge(q.tenant.Name)
	b := forward.BodyLimits{MaxBytes: q.policy.spec.Routing.MaxBody, Timeout: g.cfg.BodyTimeout, Tier: "regional", Charge: &q.charge}
	if deadline > 0 {
		b.Deadline = q.arrived.Add(deadline)
	}
	return b
}

// deadlineOf returns the client's own deadline, 0 when it sets none. Invalid values are refused later, once the
// body is read.
func deadlineOf(h http.Header) time.Duration {
	t, e := forward.ReadSLO(h)
	if e != nil {
		return 0
	}
	return t.Deadline
}

// cellNameOf returns the name of the client's location cell, or "" when it is unknown.
func (g *gatewayServer) cellNameOf(client netip.Addr) string {
	if g.cfg.Atlas == nil || !client.IsValid() {
		return ""
	}
	fix := g.cfg.Atlas.Locate(client)
	if fix.Cell == geo.NoCell {
		return ""
	}
	return geo.CellName(fix.Cell)
}

// chargeTenant charges the request to the tenant's limits and counts it as demand.
func (g *gatewayServer) chargeTenant(w http.ResponseWriter, q *gatewayRequest) *openai.Error {
	cost := g.router.view.Load().OutputTokenCost(q.model.Name)
	denial, ok := g.tenants.chargeRequest(q, w.Header(), g.cellNameOf(q.client), cost, time.Now())
	if !ok {
		return denialError(denial)
	}
	return nil
}

// settleRequest returns the unused part of what the request reserved, and records its usage.
func (g *gatewayServer) settleRequest(q *gatewayRequest) {
	q.charge.ReleaseBytes()
	g.tenants.settleRequest(q, time.Now())
	if q.hasLease {
		g.usage.recordUsage(q)
	}
}
