package local

import (
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
)

// usageRetryInterval is how long usage is not requested from a worker that refused it. By then it may run another engine.
const usageRetryInterval = time.Hour

// decideAskUsage decides whether usage is requested for a stream whose client did not ask for it. Behind a gateway, the gateway
// asks for it and removes it from the stream. On a plain listener this tier does both.
func (v *zoneRequest) decideAskUsage(o *zonePolicy, plain bool) {
	wanted := v.hop.AskUsage
	if plain {
		wanted = o.Spec.Routing.RequestsUsage()
	}
	v.askUsage = wanted && openai.StatesUsageOnRequest(v.httpRequest.URL.Path) && v.Envelope.MayRequestUsage()
}

// buildForwardedBody is the body as it is forwarded, without the request for usage.
func (v *zoneRequest) buildForwardedBody() openai.EditedBody {
	w := openai.NewEditedBody(v.Body)
	w.SetModel(&v.Envelope, v.Model)
	if v.imposedLimit > 0 {
		w.SetOutputLimit(v.PathShape, &v.Envelope, v.imposedLimit)
	}
	return w
}

// buildWorkerBody is the body that a worker is sent, and how the answer must be edited for it.
func (x *attemptRunner) buildWorkerBody(v *zoneRequest, w *zoneWorker) (openai.EditedBody, forward.Options) {
	body := v.buildForwardedBody()
	if !v.askUsage || time.Now().UnixNano()-w.usageRefusedAt.Load() < int64(usageRetryInterval) {
		return body, forward.Options{}
	}
	original := body
	body.RequestUsage(&v.Envelope)
	return body, forward.Options{
		HideUsage: x.cfg.Plain, Original: &original, OnUsageRefused: func() { w.usageRefusedAt.Store(time.Now().UnixNano()) },
	}
}
