package local

import (
	"cmp"
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
)

// routes is the door for gateways, or for anybody when plain.
func (a *Agent) routes() http.Handler {
	mux := http.NewServeMux()
	for _, p := range []string{openai.PathChat, openai.PathCompletions, openai.PathResponses} {
		mux.HandleFunc("POST "+p, a.generate)
	}
	mux.HandleFunc("POST "+openai.PathMessages, func(w http.ResponseWriter, r *http.Request) { a.generate(relay.SpeakAnthropic(w), r) })
	mux.HandleFunc("POST "+openai.PathEmbeddings, a.embed)
	mux.HandleFunc("POST "+openai.PatternInfer, a.infer)
	mux.HandleFunc("POST "+openai.PatternInferVersion, a.infer)
	mux.HandleFunc("GET "+openai.PathModels, a.listModels)
	mux.HandleFunc("GET "+openai.PathModels+"/{model...}", a.listModels)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		relay.WriteError(w, &openai.Error{
			Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: openai.CodeNotFound,
			Message: "POST to /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/responses or /v2/models/MODEL/infer, or GET /v1/models", NoRetry: true,
		})
	})
	return a.passesThrough(mux)
}

// generate takes one request for work.
func (a *Agent) generate(w http.ResponseWriter, r *http.Request) {
	v, refusal := a.read(w, r)
	if refusal != nil {
		a.refuseUnread(w, refusal)
		return
	}
	a.fallBack(w, v)
	a.follow(v, a.policy.Load())
	if refusal := a.goesOn(v); refusal != nil {
		a.vault.Release(v.stream.seam)
		v.charge.Release()
		a.refuse(w, v, refusal, false)
		return
	}
	v.leaves = true
	a.serve(w, v)
}

// read makes a visit of a request.
func (a *Agent) read(w http.ResponseWriter, r *http.Request) (_ *visit, refused *openai.Error) {
	o := a.policy.Load()
	v := &visit{r: r, arrived: time.Now(), excluded: [2]int32{-1, -1}}
	defer func() {
		if refused != nil {
			v.charge.Release()
		}
	}()
	if refusal := a.hop(v); refusal != nil {
		return nil, refusal
	}
	body, refusal := a.bodyBounds(v).Read(w, r)
	if refusal != nil {
		return nil, refusal
	}
	v.body = body
	if err := openai.Scan(body, &v.env); err != nil {
		if e := (*openai.Error)(nil); errors.As(err, &e) {
			return nil, e
		}
		return nil, openai.InvalidJSON("the body cannot be read")
	}
	if a.cfg.Plain {
		v.env.Model = cmp.Or(relay.TakeRewrite(r.Header), v.env.Model)
	}
	if refusal := a.resolve(v, o); refusal != nil {
		return nil, refusal
	}
	v.estimate = int64(v.hop.PromptTokens)
	if v.estimate <= 0 {
		v.estimate = int64(v.env.Tokens(o.bytesPerToken(v.model)))
	}
	v.ask(o, a.cfg.Plain)
	return v, a.limit(v, o)
}

// bodyBounds are those of a visit's body.
func (a *Agent) bodyBounds(v *visit) relay.BodyBounds {
	v.charge = a.bodies.Charge(v.hop.Tenant)
	return relay.BodyBounds{Limit: a.policy.Load().maxBody(), Within: a.cfg.BodyTimeout, By: v.deadline, Tier: "local", Charge: &v.charge}
}

// hop reads what the gateway and the client say of a request in its head. Behind a plain door nobody is believed to be a
// gateway.
func (a *Agent) hop(v *visit) *openai.Error {
	h := v.r.Header
	v.retries = 1
	if a.cfg.Plain {
		relay.Strip(h)
		v.hop.Tenant = spec.TenantAlone
		v.hop.RequestID = rand.Text()
		o := a.policy.Load()
		c, named, err := relay.NamedClass(h, o.spec)
		v.class = a.classAlone(c, named)
		v.hop.Flow, v.hop.TellEndpoint = relay.Flow(h, o.alone()), o.alone() != nil && o.alone().Trusted
		if err != nil {
			return badHeader(err)
		}
		return v.times(h)
	}
	hop, err := relay.ParseHop(h)
	if err != nil {
		return badHeader(err)
	}
	v.hop, v.class = hop, hop.Class
	v.retries = min(hop.RetriesLeft, 1)
	return v.times(h)
}

func badHeader(err error) *openai.Error {
	if err == nil {
		return nil
	}
	return &openai.Error{Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: openai.CodeInvalidValue, Message: err.Error(), NoRetry: true}
}

// refuse answers a visit that was never begun. What another place might serve is marked as not started.
func (a *Agent) refuse(w http.ResponseWriter, v *visit, e *openai.Error, begun bool) {
	a.meters.refused(e)
	elsewhere := e.Code == openai.CodeNoCapacity || e.Code == openai.CodeModelNotFound ||
		e.Code == openai.CodeModelLoading || e.Code == openai.CodeModelLoadFailed || e.Code == openai.CodeDeadline && !e.NoRetry
	if v.hop.RequestID != "" {
		w.Header().Set(relay.HeaderXRequestID, v.hop.RequestID)
	}
	if elsewhere && !begun && !a.cfg.Plain {
		relay.WriteNotStarted(w, e)
		return
	}
	relay.WriteError(w, e)
}

// refuseUnread answers a request that was refused before there was a visit. One for which there was no memory another place
// may serve.
func (a *Agent) refuseUnread(w http.ResponseWriter, e *openai.Error) {
	a.meters.refused(e)
	if e.Code == openai.CodeNoCapacity && !a.cfg.Plain {
		relay.WriteNotStarted(w, e)
		return
	}
	relay.WriteError(w, e)
}

// listModels answers GET /v1/models with what the zone serves, or with one of that.
func (a *Agent) listModels(w http.ResponseWriter, r *http.Request) {
	one, _ := openai.ListsModels(r.URL.Path)
	answer, e := openai.EncodeModels(a.offered(), one, a.started.Unix())
	if e != nil {
		relay.WriteError(w, e)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // a caller that has left needs no answer
}
