package regional

import (
	"net/http"

	"github.com/spillway-lb/spillway/internal/grpcmeta"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
)

// findModelName finds the model that a request is for. as replaces it by the name that it resolves to.
func (q *gatewayRequest) findModelName(r *http.Request, svc *spec.Service) (as func(string), e *openai.Error) {
	q.env.N = 1
	beside, e := forward.ModelFromHeaders(r)
	if e != nil {
		return nil, e
	}
	rename := q.renameModelInQuery // resolveModel handles the headers
	q.env.Model = beside
	if q.kind == forward.GRPC && grpcmeta.NamesModel(r.URL.Path) {
		name, inside, e := q.replay.ReadModel()
		switch {
		case e == nil && beside != "" && name != beside:
			_, e := forward.ReconcileModel(r, name)
			return nil, e
		case e == nil:
			q.env.Model = name
			return func(name string) { rename(name); inside(name) }, nil
		case beside == "" || q.replay.SlowError() != nil || q.isModelRestricted(svc):
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
func (q *gatewayRequest) recordPassthroughUsage(res *forward.ForwardResult) {
	q.passthrough = passthroughUsage{accepted: true, kind: kindName(q.kind), bytesIn: q.replay.BytesRead() + res.BytesIn, bytesOut: res.BytesOut}
}
