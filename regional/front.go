package regional

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
)

// serveFront is the clients' door.
func (g *Gateway) serveFront(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	relay.Strip(r.Header)
	id := requestID(r.Header, g.newID)
	w.Header()[relay.HeaderXRequestID] = []string{id}
	g.front.open.announce(w.Header(), r.ProtoMajor)
	if r.URL.Path == "/healthz" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n")) // a prober that has left needs no answer
		return
	}
	if r.URL.Path == openai.PathMessages {
		w = relay.SpeakAnthropic(w)
	}
	want, known := method(r.URL)
	kind := relay.Usual
	if !known || r.Method == http.MethodGet {
		kind = relay.KindOf(r)
	}
	switch {
	case r.Method == http.MethodConnect && r.ProtoMajor > 1:
		g.refuse(w, nil, noTunnel())
	case kind != relay.Usual:
		g.serveThrough(w, r, kind, id, arrived)
	case !known:
		g.refuse(w, nil, noSuchPath(r.URL.Path))
	case r.Method != want:
		w.Header().Set("Allow", want)
		g.refuse(w, nil, wrongMethod(want))
	case want == http.MethodGet:
		g.serveModels(w, r)
	default:
		g.serveRequest(w, r, id, arrived)
	}
}

func (g *Gateway) newID() string {
	g.mu.Lock()
	a, b := g.rng.Uint64(), g.rng.Uint64()
	g.mu.Unlock()
	var id [32]byte // 13 digits each at the most
	return string(strconv.AppendUint(strconv.AppendUint(append(id[:0], "req_"...), a, 36), b, 36))
}

func method(u *url.URL) (string, bool) {
	_, lists := openai.ListsModels(u.Path)
	switch {
	case lists:
		return http.MethodGet, true
	case generates(u):
		return http.MethodPost, true
	}
	return "", false
}

// generates says that a POST there asks a model for work.
func generates(u *url.URL) bool {
	if openai.Generates(u.Path) {
		return true
	}
	_, ok := openai.InferModel(u.EscapedPath())
	return ok
}

func noSuchPath(path string) *openai.Error {
	return &openai.Error{
		Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: openai.CodeNotFound, NoRetry: true,
		Message: "no such path: " + strconv.Quote(path[:min(len(path), 64)]) + " (served: " + openai.PathChat + ", " + openai.PathCompletions + ", " +
			openai.PathEmbeddings + ", " + openai.PathResponses + ", " + openai.PathMessages + ", /v2/models/MODEL/infer, " + openai.PathModels + "[/MODEL])",
	}
}

// noTunnel refuses CONNECT over HTTP/2 and HTTP/3, where it is how WebSockets are asked for (RFC 8441 and RFC 9220, which
// name the status).
func noTunnel() *openai.Error {
	return &openai.Error{
		Status: http.StatusNotImplemented, Type: openai.TypeInvalidRequest, Code: openai.CodeMethodNotAllowed, NoRetry: true,
		Message: "CONNECT is not served here; open a WebSocket over HTTP/1.1, and not over HTTP/2 or HTTP/3",
	}
}

func wrongMethod(want string) *openai.Error {
	return &openai.Error{
		Status: http.StatusMethodNotAllowed, Type: openai.TypeInvalidRequest, Code: openai.CodeMethodNotAllowed, NoRetry: true,
		Message: "use " + want + " here",
	}
}

// serveRequest takes a client's request from its first header to its last byte.
func (g *Gateway) serveRequest(w http.ResponseWriter, r *http.Request, id string, arrived time.Time) {
	q := &request{arrived: arrived, hop: relay.Hop{RequestID: id, RetriesLeft: 1}}
	leave, e := g.letIn(r)
	if e != nil {
		g.refuse(w, q, e)
		return
	}
	j := journey{g: g, w: w, r: r, q: q, over: leave}
	defer j.pause()
	if e = g.admit(w, r, q); e != nil {
		g.refuse(w, q, e)
		return
	}
	j.dispatch()
}

// refuse answers with an error of our own and counts it.
func (g *Gateway) refuse(w http.ResponseWriter, q *request, e *openai.Error) {
	g.metrics.refused(q, e)
	g.outcome(q, e.Status, 0)
	if q != nil && q.peer {
		q.retriesLeft(w)
		relay.WriteNotStarted(w, e)
		return
	}
	relay.WriteError(w, e)
}

// serveModels lists what the caller may use and anybody serves, or one of that.
func (g *Gateway) serveModels(w http.ResponseWriter, r *http.Request) {
	st := g.state.Load()
	if !st.ready() {
		g.refuse(w, nil, openai.NotReady())
		return
	}
	t, _, _, e := g.authenticate(r, st)
	if e != nil {
		g.refuse(w, nil, e)
		return
	}
	svc, e := st.called(r.Host)
	if e != nil {
		g.refuse(w, nil, e)
		return
	}
	one, _ := openai.ListsModels(r.URL.Path)
	answer, e := openai.EncodeModels(g.served(st, t, svc), one, g.started.Unix())
	if e != nil {
		g.refuse(w, nil, e)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // a caller that has left needs no answer
}

// served lists models and aliases that some zone or permitted peer has workers for, that the service serves and that the
// tenant may use.
func (g *Gateway) served(st *state, t *spec.Tenant, svc *spec.Service) []string {
	v := g.view.Load()
	there := func(name string) bool {
		for i := range v.Locals {
			if m := v.Locals[i].Summary.Model(name); m != nil && m.Total > 0 {
				return true
			}
		}
		for i := range v.Peers {
			p := &v.Peers[i]
			if p.Summary == nil || !st.spec.Permits(t, st.spec.Region(p.Region)) {
				continue
			}
			if m := p.Summary.Model(name); m != nil && m.Total > 0 {
				return true
			}
		}
		return false
	}
	may := func(asked, model string) bool {
		return t.MayUse(asked, model) && st.serves(svc, asked, model) && there(model)
	}
	var names []string
	for i := range st.spec.Models {
		if n := st.spec.Models[i].Name; may(n, n) {
			names = append(names, n)
		}
	}
	for i := range st.spec.Aliases {
		a := &st.spec.Aliases[i]
		if slices.ContainsFunc(a.Targets, func(x spec.Target) bool { return may(a.Name, x.Model) }) {
			names = append(names, a.Name)
		}
	}
	slices.Sort(names)
	return names
}
