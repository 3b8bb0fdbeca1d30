package regional

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"

	"github.com/spillway-lb/spillway/internal/grpcmeta"
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

// findModelName finds the model that a request is for. as replaces it by the name that it resolves to.
func (q *gatewayRequest) findModelName(r *http.Request, svc *spec.Service) (as func(string), e *openai.Error) {
	q.env.N = 1
	headerModel, e := forward.ModelFromHeaders(r)
	if e != nil {
		return nil, e
	}
	rename := q.renameModelInQuery // resolveModel handles the headers
	q.env.Model = headerModel
	if q.kind == forward.GRPC && grpcmeta.NamesModel(r.URL.Path) {
		name, inside, e := q.replay.ReadModel()
		switch {
		case e == nil && headerModel != "" && name != headerModel:
			_, e := forward.ReconcileModel(r, name)
			return nil, e
		case e == nil:
			q.env.Model = name
			return func(name string) { rename(name); inside(name) }, nil
		case headerModel == "" || q.replay.SlowError() != nil || q.isModelRestricted(svc):
			return nil, e
		}
	}
	if q.env.Model == "" {
		e := openai.ModelRequired()
		e.Message = "name a model in the header x-model (gRPC: metadata), or for a WebSocket in the query: ?model=..."
		return nil, e
	}
	return rename, nil
}

// isModelRestricted reports whether the client is limited to some models.
func (q *gatewayRequest) isModelRestricted(svc *spec.Service) bool {
	return len(q.tenant.Models) > 0 || svc != nil && len(svc.Models) > 0
}

// newModelCheck returns a check of whether a message of a call may name a model. Only the first message may use an
// alias, because later messages are forwarded unchanged.
func (q *gatewayRequest) newModelCheck(svc *spec.Service) func(model string, first bool) *openai.Error {
	asked, served := q.env.Model, q.model.Name
	return func(model string, first bool) *openai.Error {
		switch {
		case model == served || first && model == asked:
			return nil
		case q.policy.spec.FindModel(model) == nil || svc != nil && !svc.ServesModel(model, model):
			return openai.ModelNotFound(model, nil)
		case !q.tenant.MayUseModel(model, model):
			return openai.ModelNotAllowed(model)
		}
		return nil
	}
}

// recordPassthroughUsage records what was transferred in the attempt that a worker accepted.
func (q *gatewayRequest) recordPassthroughUsage(res *forward.Result) {
	q.passthrough = passthroughUsage{accepted: true, kind: kindName(q.kind), bytesIn: q.replay.BytesRead() + res.BytesIn, bytesOut: res.BytesOut}
}
