package regional

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/paths"
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
	if openai.Anthropic(r.URL.Path) {
		w = relay.SpeakAnthropic(w)
	}
	extra := g.extraPaths()
	shape, passes := paths.Find(paths.HTTP, r.URL, extra)
	if passes && r.Method == http.MethodPost && (shape != openai.ShapeUnknown || relay.KindOf(r) == relay.Usual) {
		g.serveRequest(w, r, shape, id, arrived)
		return
	}
	_, lists := openai.ListsModels(r.URL.Path)
	want := http.MethodGet
	if !lists {
		want = http.MethodPost
	}
	switch kind := relay.KindOf(r); {
	case r.Method == http.MethodConnect && r.ProtoMajor > 1:
		g.refuse(w, nil, noTunnel())
	case kind != relay.Usual:
		if _, ok := paths.Find(protocol(kind), r.URL, extra); !ok {
			if kind == relay.GRPC {
				w = relay.SpeakGRPC(w)
			}
			g.refuse(w, nil, noSuchPath(r.URL.Path))
			return
		}
		g.serveThrough(w, r, kind, id, arrived)
	case !lists && !passes:
		g.refuse(w, nil, noSuchPath(r.URL.Path))
	case r.Method != want:
		w.Header().Set("Allow", want)
		g.refuse(w, nil, wrongMethod(want))
	default:
		g.serveModels(w, r)
	}
}

// extraPaths are those that the spec lets through beside the ones that always pass.
func (g *Gateway) extraPaths() []string {
	if st := g.state.Load(); st.ready() {
		return st.spec.Routing.ExtraPaths
	}
	return nil
}

// protocol is a kind as the list of paths has it.
func protocol(k relay.Kind) paths.Protocol {
	switch k {
	case relay.GRPC:
		return paths.GRPC
	case relay.WebSocket:
		return paths.WebSocket
	}
	return paths.HTTP
}

func (g *Gateway) newID() string {
	g.mu.Lock()
	a, b := g.rng.Uint64(), g.rng.Uint64()
	g.mu.Unlock()
	var id [32]byte // 13 digits each at the most
	return string(strconv.AppendUint(strconv.AppendUint(append(id[:0], "req_"...), a, 36), b, 36))
}

func noSuchPath(path string) *openai.Error {
	return &openai.Error{
		Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: openai.CodeNotFound, NoRetry: true,
		Message: paths.NotFoundMessage(path),
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
func (g *Gateway) serveRequest(w http.ResponseWriter, r *http.Request, shape openai.Shape, id string, arrived time.Time) {
	q := &request{arrived: arrived, shape: shape, hop: relay.Hop{RequestID: id, RetriesLeft: 1}}
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
	if q != nil {
		q.tellDeaths(w)
	}
	if q != nil && q.peer && e.Code != openai.CodeKillsWorkers {
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
