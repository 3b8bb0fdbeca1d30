package local

import (
	"net/http"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/batch"
)

// serveInference serves one KServe v2 inference. The model is in the path. The body is passed to the engine; only
// merging parses it.
func (q *requestHandler) serveInference(w http.ResponseWriter, r *http.Request) {
	v, refusal := q.readInference(w, r)
	if refusal != nil {
		q.attempts.refuseUnreadRequest(w, refusal)
		return
	}
	defer v.bodyCharge.ReleaseBytes()
	if q.mayBatch(v) && !q.scheduler.mustServeAlone(v) {
		if part, ok := batch.ReadInfer(v.Body); ok {
			q.dispatchers.serveBatched(w, v, part)
			return
		}
	}
	q.attempts.serveRequest(w, v)
}

// readInference reads an inference into a zoneRequest. The cost of its tensors is unknown before the first one was
// timed, so they are estimated as text of their length.
func (q *requestHandler) readInference(w http.ResponseWriter, r *http.Request) (_ *zoneRequest, refused *openai.Error) {
	o := q.policy.Load()
	v := newZoneRequest(r, openai.ShapeInfer)
	defer func() {
		if refused != nil {
			v.bodyCharge.ReleaseBytes()
		}
	}()
	if refusal := q.readHop(v); refusal != nil {
		return nil, refusal
	}
	var refusal *openai.Error
	if v.Body, refusal = q.bodyBounds(v).ReadBody(w, r); refusal != nil {
		return nil, refusal
	}
	if refusal = forward.ReadEnvelope(v.PathShape, r, v.Body, &v.Envelope); refusal != nil {
		return nil, refusal
	}
	if refusal = q.resolveModel(v, o); refusal != nil {
		return nil, refusal
	}
	v.EstimatedTokens = int64(v.hop.PromptTokens)
	if v.EstimatedTokens <= 0 {
		v.EstimatedTokens = max(1, int64(float64(len(v.Body))/o.BytesPerToken(v.Model)))
	}
	q.attempts.setFingerprint(v)
	v.LongestInputTokens = 1 // tensors have no context limit
	return v, nil
}
