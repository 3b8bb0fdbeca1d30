package local

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/grpcwire"
	"github.com/spillway-lb/spillway/internal/network"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
)

// Bounds of a WebSocket. A gateway's own are meant to be reached first.
const (
	tunnelIdle = time.Hour
	tunnelLife = 7 * 24 * time.Hour
)

// through takes a call or an upgrade, which is not read whole before anything else: it waits for a worker with room as any other, and then streams.
func (a *Agent) through(w http.ResponseWriter, r *http.Request, kind relay.Kind) {
	v := &visit{r: r, arrived: time.Now(), excluded: [2]int32{-1, -1}, through: relay.NewReplay(r.Body), kind: kind}
	defer v.charge.Release()
	defer v.through.Close()
	if refusal := a.readThrough(w, v, kind); refusal != nil {
		a.refuseUnread(w, refusal)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if !v.deadline.IsZero() {
		var over context.CancelFunc
		ctx, over = context.WithDeadlineCause(ctx, v.deadline, relay.ErrLate)
		defer over()
	}
	if kind == relay.WebSocket {
		defer a.tunnels.Enter(cancel)()
	}
	a.floor.earn()
	for begun := false; ; begun = true {
		if kind == relay.GRPC && !a.floor.takesCalls(v) {
			a.refuse(w, v, noCalls(v.model), begun)
			return
		}
		at, refusal := a.enter(ctx, v)
		if refusal != nil {
			if relay.Late(ctx) {
				refusal, begun = openai.DeadlineUnmeetable("local"), true
			} else if ctx.Err() != nil {
				return
			}
			a.refuse(w, v, refusal, begun)
			return
		}
		res := a.attemptThrough(ctx, w, v, at, kind)
		a.floor.learnCalls(at.worker, v, &res)
		v.exclude(at.choice.ID)
		if res.Retryable && v.retries > 0 && v.through.Again() && a.floor.spend(v, time.Now()) {
			v.retries--
			a.meters.retries.Inc()
			continue
		}
		if res.Denied != nil && !res.Started {
			a.refuse(w, v, res.Denied, true)
			return
		}
		if res.Late && !res.Started {
			a.refuse(w, v, openai.DeadlineUnmeetable("local"), true)
			return
		}
		if e := v.through.Slow(); e != nil && !res.Started {
			a.refuse(w, v, e, true)
			return
		}
		if res.Refused != nil && kind == relay.GRPC {
			a.refuse(w, v, res.Refused.Error(), true)
			return
		}
		a.finish(w, v, &res, begun)
		return
	}
}

// readThrough reads what a request says beside its body: the model, and how long it may take.
func (a *Agent) readThrough(w http.ResponseWriter, v *visit, kind relay.Kind) *openai.Error {
	if refusal := a.hop(v); refusal != nil {
		return refusal
	}
	v.env.N = 1
	if d, ok := grpcwire.Timeout(v.r.Header.Get(grpcwire.HeaderTimeout)); ok && v.deadline.IsZero() {
		v.deadline = v.arrived.Add(d)
	}
	v.through.Bound(w, a.bodyBounds(v), false)
	beside, refusal := relay.NamedModel(v.r)
	if refusal != nil {
		return refusal
	}
	inside, named := func(string) {}, false
	switch v.env.Model = cmp.Or(v.hop.Model, beside); {
	case v.hop.Model != "": // the gateway has read the messages' models
	case kind == relay.GRPC && grpcwire.NamesModel(v.r.URL.Path):
		name, as, refusal := v.through.Model()
		if refusal != nil && (v.env.Model == "" || v.through.Slow() != nil || a.fenced(v)) {
			return refusal
		}
		if refusal == nil {
			if _, refusal = relay.AgreeModel(v.r, name); refusal != nil {
				return refusal
			}
			v.env.Model, inside, named = name, as, true
		}
	case v.env.Model == "":
		return openai.ModelRequired()
	}
	asked := v.env.Model
	if refusal := a.resolve(v, a.policy.Load()); refusal != nil {
		return refusal
	}
	if named && a.fenced(v) {
		v.through.Judge(a.judge(v, asked))
	}
	inside(v.model)
	relay.RenameModel(v.r.Header, v.model)
	v.estimate = max(1, int64(v.hop.PromptTokens))
	v.longest = 1 // nobody reads how long it is
	return nil
}

// fenced reports whether the caller of a zone that stands alone may not use every model.
func (a *Agent) fenced(v *visit) bool {
	t := a.policy.Load().alone()
	return a.cfg.Plain && t != nil && len(t.Models) > 0
}

// judge decides whether a message of a call may name a model. Only the first message may name it by an alias: the others go
// on as they are.
func (a *Agent) judge(v *visit, asked string) func(model string, first bool) *openai.Error {
	t, served := a.policy.Load().alone(), v.model
	return func(model string, first bool) *openai.Error {
		if model == served || first && model == asked || t.MayUse(model, model) {
			return nil
		}
		return openai.ModelNotAllowed(model)
	}
}

// attemptThrough streams a visit through one worker and books how it went. What tells a sick worker by its silence leaves
// it out: it may be silent for as long as its two ends please.
func (a *Agent) attemptThrough(ctx context.Context, w http.ResponseWriter, v *visit, at *attempt, kind relay.Kind) relay.Result {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := &meter{agent: a, at: at}
	a.floor.begin(at, cancel)
	a.floor.loosen(at)
	defer a.floor.foretell(at, time.Duration(1.5*at.choice.Seconds*float64(time.Second))+50*time.Millisecond).stop()
	base, forward := at.worker.declared.URL, a.streams
	if kind == relay.GRPC {
		base, forward = cmp.Or(at.worker.declared.GRPC, base), a.calls
	}
	req, err := relay.Onward(ctx, v.r, base+target(v.r.URL), kind, v.through.Open(), nil)
	if err == nil && kind == relay.GRPC && !v.deadline.IsZero() {
		req.Header.Set(grpcwire.HeaderTimeout, grpcwire.FormatTimeout(time.Until(v.deadline)))
	}
	var res relay.Result
	switch {
	case err != nil:
		res = relay.Result{Err: errors.Join(errRequest, err)}
	case kind == relay.WebSocket:
		res = forward.Tunnel(ctx, w, req, m, relay.Bounds{Idle: tunnelIdle, Life: tunnelLife})
	default:
		res = forward.Through(ctx, w, req, kind, m)
	}
	m.sign(&res)
	a.floor.end(at, m, &res, time.Now())
	if res.Started && res.Status/100 == 2 {
		a.meters.spent(v, m.account())
	}
	if res.Err != nil && !res.ClientGone && !res.Late {
		select {
		case at.worker.look <- struct{}{}:
		default:
		}
	}
	return res
}

// callSupport is what is known of a worker and gRPC.
type callSupport uint8

const (
	callsUnknown callSupport = iota
	callsTaken               // it has answered a call
	callsRefused             // it has answered a call by what is none of gRPC's
)

// learnCalls remembers whether a worker takes gRPC, by what became of a call. A worker that has answered one takes them; of
// any other, an answer that is not gRPC's, or a connection that does not get as far as an answer, says that it does not. A
// failed dial and an overloaded proxy say neither. What is remembered is forgotten when the worker is away.
func (f *floor) learnCalls(w *worker, v *visit, res *relay.Result) {
	if v.kind != relay.GRPC || res.ClientGone || res.Late || res.GivenUp() || errors.Is(res.Err, errRequest) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case res.Started:
		w.calls = callsTaken
	case w.calls == callsTaken || unreachable(res.Err):
	case res.Refused == nil && res.Status == 0, res.Refused != nil && !res.NotStarted && res.Status < 500 && !overloads(res.Status):
		w.calls = callsRefused
	}
}

// takesCalls leaves workers that take no gRPC out of a call's choice, and says whether any is left.
func (f *floor) takesCalls(v *visit) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pools[v.model]
	if p == nil || len(p.workers) == 0 {
		return true // the refusal is another
	}
	v.stream.unfit = v.stream.unfit[:0]
	for i, w := range p.workers {
		if w.calls == callsRefused {
			v.stream.unfit = append(v.stream.unfit, p.view.Workers[i].ID)
		}
	}
	v.shun()
	return len(v.stream.unfit) < len(p.workers)
}

// noCalls refuses a gRPC call that no worker of its model takes.
func noCalls(model string) *openai.Error {
	return &openai.Error{
		Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: openai.CodeNotFound, NoRetry: true,
		Message: "no worker of " + strconv.Quote(model) + " takes gRPC: send the request over HTTP",
	}
}

// loosen takes an attempt out of those that the breaker waits for.
func (f *floor) loosen(at *attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at.loose = true
	at.worker.breaker.Ended()
}

// callTransport carries gRPC to workers: HTTP/2 with prior knowledge to http, by negotiation to https.
func callTransport(names *serverNames, nw network.Network) *http.Transport {
	t := relay.NewTransport(nil)
	t.TLSNextProto = nil
	t.Protocols = &http.Protocols{}
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetUnencryptedHTTP2(true)
	dial := workerDialer(nw)
	t.DialContext = dial
	t.DialTLSContext = names.dialer(dial, "h2")
	return t
}
