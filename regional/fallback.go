package regional

import (
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/demand"
	"github.com/spillway-lb/spillway/regional/routing"
)

// dispatchWithFallback begins an attempt for the resolved model or, when no endpoint can meet the class's TTFT target
// with it, for a fallback model that can. A model that the client pinned stays, and so does one of another region's
// request, which was resolved there.
func (j *requestLoop) dispatchWithFallback() (*gatewayAttempt, routing.DispatchOutcome) {
	g, q := j.g, j.q
	p := &gatewayAttempt{g: g, q: q}
	if q.model.Fallback == "" || !q.tenant.Fallback || q.modelPinned || q.fromPeer || !openai.ContinuesPrompt(q.path) {
		return p, g.dispatchRequest(q, p)
	}
	q.query.TTFTTarget = q.model.TTFT.ForClass(q.query.Class).Seconds()
	outcome := g.dispatchRequest(q, p)
	if isMissed(outcome) {
		outcome = j.dispatchFallback(p)
	}
	if q.query.TTFTTarget = 0; isMissed(outcome) {
		outcome = g.dispatchRequest(q, p)
	}
	return p, outcome
}

// isMissed reports whether another model may still serve the request in time.
func isMissed(o routing.DispatchOutcome) bool {
	return o == routing.NoEndpoint || o == routing.MissesTarget
}

// dispatchFallback begins an attempt for the first fallback model that meets the query's TTFT target.
func (j *requestLoop) dispatchFallback(p *gatewayAttempt) routing.DispatchOutcome {
	g, q := j.g, j.q
	for m := range modelroute.FallbackModels(q.policy.spec, q.tenant, q.model) {
		svc := q.policy.spec.FindService(q.service)
		if !q.policy.servesModel(svc, m.Name, m.Name) || exceedsModelLimits(m, q.query.PromptTokens, q.env.MaxTokens) {
			continue
		}
		own := q.query
		q.query.Model, q.query.MaxTokens = m.Name, g.tenants.expectedOutput(m.Name, demand.OutputLimit(m, q.env.MaxTokens))*q.env.N
		if outcome := g.dispatchRequest(q, p); !isMissed(outcome) {
			j.applyFallback(m)
			return outcome
		}
		q.query = own
	}
	return routing.MissesTarget
}

// exceedsModelLimits reports whether a prompt and the requested output certainly exceed the model's limits.
func exceedsModelLimits(m *spec.Model, prompt, output int) bool {
	return m.MaxContext > 0 && routing.MinPromptTokens(prompt)+output > m.MaxContext || m.OutputLimit > 0 && output > m.OutputLimit
}

// applyFallback switches to another model, and reports it in the response.
func (j *requestLoop) applyFallback(m *spec.Model) {
	q := j.q
	j.g.metrics.countFallback(q.model.Name, m.Name)
	q.setModel(m)
	q.hop.Model = m.Name
	j.w.Header().Set(forward.HeaderFallback, q.env.Model+" -> "+m.Name)
}
