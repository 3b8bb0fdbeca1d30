package local

import (
	"cmp"
	"crypto/rand"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/paths"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
)

// routes is the door for gateways, or for anybody when plain. A path that is not listed is answered 404 here too, so that no
// gateway of another version or configuration passes more.
func (a *Agent) routes() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		extra := a.policy.Load().spec.Routing.ExtraPaths
		shape, posts := paths.Find(paths.HTTP, r.URL, extra)
		if r.Method == http.MethodPost && posts && (shape != openai.ShapeUnknown || relay.KindOf(r) == relay.Usual) {
			a.receive(w, r, shape)
			return
		}
		kind, p := relay.KindOf(r), paths.WebSocket
		if kind == relay.GRPC {
			p = paths.GRPC
		}
		_, passes := paths.Find(p, r.URL, extra)
		if kind == relay.GRPC && r.ProtoMajor > 1 {
			w = relay.SpeakGRPC(w)
		}
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		_, lists := openai.ListsModels(r.URL.Path)
		switch {
		case kind != relay.Usual && passes:
			a.through(w, r, kind)
		case kind == relay.Usual && reads && lists:
			a.listModels(w, r)
		case kind == relay.Usual && reads && r.URL.Path == "/healthz":
			_, _ = w.Write([]byte("ok\n"))
		case kind == relay.Usual && lists:
			refuseMethod(w, http.MethodGet+", "+http.MethodHead)
		case kind == relay.Usual && posts:
			refuseMethod(w, http.MethodPost)
		default:
			relay.WriteError(w, &openai.Error{
				Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: openai.CodeNotFound,
				Message: paths.NotFoundMessage(r.URL.Path), NoRetry: true,
			})
		}
	})
}

// refuseMethod answers 405 to a path that is served by other methods.
func refuseMethod(w http.ResponseWriter, allow string) {
	w.Header().Set("Allow", allow)
	relay.WriteError(w, &openai.Error{
		Status: http.StatusMethodNotAllowed, Type: openai.TypeInvalidRequest, Code: openai.CodeMethodNotAllowed, NoRetry: true,
		Message: "use " + allow + " here",
	})
}

// receive takes a request whose body is read whole.
func (a *Agent) receive(w http.ResponseWriter, r *http.Request, shape openai.Shape) {
	if openai.Anthropic(r.URL.Path) {
		w = relay.SpeakAnthropic(w)
	}
	switch shape {
	case openai.ShapeEmbeddings:
		a.embed(w, r)
	case openai.ShapeInfer:
		a.infer(w, r)
	default:
		a.generate(w, r, shape)
	}
}

// generate takes one request for work.
func (a *Agent) generate(w http.ResponseWriter, r *http.Request, shape openai.Shape) {
	v, refusal := a.read(w, r, shape)
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
func (a *Agent) read(w http.ResponseWriter, r *http.Request, shape openai.Shape) (_ *visit, refused *openai.Error) {
	o := a.policy.Load()
	v := &visit{r: r, shape: shape, arrived: time.Now(), excluded: [2]int32{-1, -1}}
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
	if refusal := relay.ReadEnvelope(shape, r, body, &v.env); refusal != nil {
		return nil, refusal
	}
	if a.cfg.Plain && !shape.ModelInPath() {
		v.env.Model = cmp.Or(relay.TakeRewrite(r.Header), v.env.Model)
	}
	if refusal := a.resolve(v, o); refusal != nil {
		return nil, refusal
	}
	v.estimate = int64(v.hop.PromptTokens)
	if v.estimate <= 0 {
		v.estimate = int64(v.env.Tokens(o.bytesPerToken(v.model)))
	}
	if !shape.Generates() && shape != openai.ShapeEmbeddings {
		v.longest = 1 // several sequences, or none: nothing of it is to fit a context
	}
	v.ask(o, a.cfg.Plain)
	a.fingerprint(v)
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
		v.hop.RequestID = cmp.Or(relay.ClientRequestID(h), rand.Text())
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
