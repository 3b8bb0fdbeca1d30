package local

import (
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/local/batch"
)

// infer takes one KServe v2 inference: the model is in the path, and the body is the engine's own business but for what
// merging needs.
func (a *Agent) infer(w http.ResponseWriter, r *http.Request) {
	v, refusal := a.readInfer(w, r)
	if refusal != nil {
		a.refuseUnread(w, refusal)
		return
	}
	defer v.charge.Release()
	if a.merges(v) && !a.floor.goesAlone(v) {
		if part, ok := batch.ReadInfer(v.body); ok {
			a.batcher.ride(w, v, part)
			return
		}
	}
	a.serve(w, v)
}

// readInfer makes a visit of an inference. What its tensors cost is not known before the first one was timed: they are
// taken for text of their length.
func (a *Agent) readInfer(w http.ResponseWriter, r *http.Request) (_ *visit, refused *openai.Error) {
	o := a.policy.Load()
	v := &visit{r: r, shape: openai.ShapeInfer, arrived: time.Now(), excluded: [2]int32{-1, -1}}
	defer func() {
		if refused != nil {
			v.charge.Release()
		}
	}()
	if refusal := a.hop(v); refusal != nil {
		return nil, refusal
	}
	var refusal *openai.Error
	if v.body, refusal = a.bodyBounds(v).Read(w, r); refusal != nil {
		return nil, refusal
	}
	if refusal = relay.ReadEnvelope(v.shape, r, v.body, &v.env); refusal != nil {
		return nil, refusal
	}
	if refusal = a.resolve(v, o); refusal != nil {
		return nil, refusal
	}
	v.estimate = int64(v.hop.PromptTokens)
	if v.estimate <= 0 {
		v.estimate = max(1, int64(float64(len(v.body))/o.bytesPerToken(v.model)))
	}
	a.fingerprint(v)
	v.longest = 1 // tensors have no context to be too long for
	return v, nil
}
