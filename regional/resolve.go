package regional

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
)

// resolveModel resolves the requested name to a model that the client may use.
func (g *gatewayServer) resolveModel(r *http.Request, q *gatewayRequest, svc *spec.Service) *openai.Error {
	asked := q.env.Model
	a, err := modelroute.ResolveModel(q.policy.spec, &modelroute.ModelQuery{
		Model: asked, Pin: forward.FirstValue(r.Header, forward.HeaderClientTarget), Tenant: q.tenant.Name, Header: r.Header, Chance: rand.Float64(),
		Session: forward.FirstValue(r.Header, forward.HeaderClientSession), User: q.env.User, Client: addrText(q.client),
	})
	if not := (*modelroute.NotATargetError)(nil); err != nil && errors.As(err, &not) {
		return headerError(forward.HeaderClientTarget, not.Error())
	}
	if err != nil || !q.policy.servesModel(svc, asked, a.Model) {
		return openai.ModelNotFound(asked, g.listServedModels(q.policy, q.tenant, svc))
	}
	if !q.tenant.MayUseModel(asked, a.Model) {
		return openai.ModelNotAllowed(asked)
	}
	q.modelPinned = a.Rule == modelroute.RulePin
	q.setModel(q.policy.spec.FindModel(a.Model))
	forward.ReplaceHeaderModel(r.Header, a.Model)
	return nil
}

// setModel sets the model of the request. The engine must receive the name under which the worker serves the
// model.
func (q *gatewayRequest) setModel(m *spec.Model) {
	q.model, q.body = m, openai.NewEditedBody(q.raw)
	if q.kind != forward.Buffered {
		return
	}
	q.body.SetModel(&q.env, m.Name)
	if q.shape.ModelInPath() {
		q.path = openai.ReplacePathModel(q.inferPath, m.Name)
		if q.pathQuery != "" {
			q.path += "?" + q.pathQuery
		}
	}
	q.renameModelInQuery(m.Name)
}

// renameModelInQuery replaces the model in the query of the path, if it has one.
func (q *gatewayRequest) renameModelInQuery(model string) {
	if path, query, ok := strings.Cut(q.path, "?"); ok {
		q.path = path + "?" + forward.ReplaceQueryModel(query, model)
	}
}

// addrText returns an address as text, empty when it is unknown.
func addrText(a netip.Addr) string {
	if a.IsValid() {
		return a.String()
	}
	return ""
}
