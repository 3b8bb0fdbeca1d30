package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Paths of the API.
const (
	pathStatus  = "/v1/status"
	pathExplain = "/v1/explain"
	pathSpec    = "/v1/spec"
	pathDrains  = "/v1/drains"
)

// paramLinearizable asks for an answer that holds every write made before the question, wherever it was made.
const paramLinearizable = "linearizable"

// maxBody bounds a call, in bytes: a spec with thousands of tenants fits.
const maxBody = 8 << 20

// api is the operators' interface. Who may come in at all was decided by the listener, and by role what they may do.
func (s *Server) api() http.Handler { return sameSite(s.calls()) }

func (s *Server) calls() http.Handler {
	mux := s.plain()
	routes := s.routes()
	for _, t := range routes {
		mux.HandleFunc(t.method+" "+t.path, s.guarded(t))
	}
	mux.HandleFunc("GET "+pathOpenAPI, s.guarded(route{needs: Viewer, serve: serveDescription(routes)}))
	for path, serve := range map[string]http.HandlerFunc{
		"GET /debug/pprof/": pprof.Index, "GET /debug/pprof/profile": pprof.Profile, "GET /debug/pprof/trace": pprof.Trace,
	} {
		mux.HandleFunc(path, s.guarded(route{needs: Operator, serve: func(w http.ResponseWriter, r *http.Request, _ string) { serve(w, r) }}))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, &Error{Status: http.StatusNotFound, Message: "no such call: " + r.Method + " " + r.URL.Path, Hint: "GET " + pathOpenAPI + " lists the calls"})
	})
	return mux
}

// routes are the calls, in the order of the description.
func (s *Server) routes() []route {
	b := &s.cfg.Backend
	var explain func(context.Context, ExplainQuery, string) (*ExplainAnswer, error)
	if b.Explain != nil {
		explain = func(ctx context.Context, q ExplainQuery, _ string) (*ExplainAnswer, error) { return b.Explain(ctx, q) }
	}
	plan, planDiff, planHistory := b.plans()
	return []route{
		look(pathStatus, "Describe the node and what it stands over.", s.status()),
		change(http.MethodPost, pathExplain, "Replay the decisions that a request would meet.", explain).by(Viewer),
		look(pathQueue, "Say who waits in a local instance.", b.Queue),
		look(pathUplinks, "Describe the sessions with the tiers above and below.", b.Uplinks),
		exactly(look(pathSpec, "Return the spec in force.", b.Spec), b.SpecNow),
		change(http.MethodPut, pathSpec, "Put a new spec in force, or say what that would do.", b.Apply),
		look(pathStage, "Say which spec is on trial, and how it does.", b.Stage),
		change(http.MethodPost, pathStage, "Promote the spec on trial, or take it back.", b.EndStage),
		numbered(pathPlan, "Return a plan: prices, displaced cells, and where it comes from.", []string{"epoch"}, plan),
		numbered(pathPlanDiff, "Say what moved between two plans.", []string{"from", "to"}, planDiff),
		numbered(pathPlanHistory, "List the newest plans that the node has seen.", []string{"limit"}, planHistory),
		exactly(look(pathDrains, "List the drains in force.", b.Drains), b.DrainsNow),
		change(http.MethodPost, pathDrains, "Send nothing new to a region, a zone or a worker.", b.Drain),
		remove(pathDrains, "path", "Let a drained region, zone or worker take traffic again.", b.Undrain),
		look(pathDNSSEC, "Say how the zone is signed, with its public keys and the DS that the parent zone is to show.", b.DNSSEC),
		change(http.MethodPost, pathDNSSEC, "Sign the zone, roll its key, say that the parent zone shows its DS, or stop.", b.ChangeDNSSEC).by(Admin),
		change(http.MethodPost, pathTickets, "Make a new key for redirect tickets, and remove the earlier ones if asked to.", b.RotateTickets).by(Admin),
		look(pathAudit, "List the newest changes: who, what, when and why.", b.Audit),
		look(pathMembers, "List the global nodes.", b.Members),
		change(http.MethodPost, pathMembers, "Have a global node take part.", b.AddMember).by(Admin),
		remove(pathMembers, "name", "Take a global node out.", b.RemoveMember).by(Admin),
		change(http.MethodPost, pathLeader, "Hand leadership on.", b.Lead).by(Admin),
		archiveRoute("Return the agreed state, its secrets included.", b.Archive).by(Admin),
		restoreRoute("Put an archived spec and its drains back in force.", b.Restore).by(Admin),
	}
}

// status is the tier's, with what the admin interface itself knows.
func (s *Server) status() func(context.Context) (*Status, error) {
	of := s.cfg.Backend.Status
	if of == nil {
		return nil
	}
	return func(ctx context.Context) (*Status, error) {
		out, err := of(ctx)
		if err != nil {
			return nil, err
		}
		with := *out
		for _, c := range s.cfg.Certificates {
			with.Certificates = append(with.Certificates, Certificate{Name: c.Name, ExpiresAt: c.At()})
		}
		return &with, nil
	}
}

// plain is what anybody who reaches the metrics listener may see.
func (s *Server) plain() *http.ServeMux {
	mux := http.NewServeMux()
	if s.cfg.Gatherer != nil {
		own := prometheus.NewRegistry()
		own.MustRegister(s.cfg.Certificates)
		mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{s.cfg.Gatherer, own}, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	}
	mux.HandleFunc("GET "+pathAutoscaling, s.autoscaling)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.readiness)
	return mux
}

// readiness is the answer to a probe; ?verbose says besides what the node runs from and how old that is.
func (s *Server) readiness(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	said := "ok"
	if ready := s.cfg.Backend.Ready; ready != nil {
		if err := ready(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			said = "not ready: " + err.Error()
		}
	}
	fmt.Fprintln(w, said)
	if r.URL.Query().Has("verbose") {
		verbose(w, s.cfg.Backend.Basis)
	}
}

func notHere() *Error {
	return &Error{
		Status: http.StatusNotImplemented, Message: "this tier cannot do that",
		Hint: "ask a global node: --server unix:///path/of/its/admin.sock",
	}
}

func answer(w http.ResponseWriter, out any, err error) {
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.Encode(out) // a reader that has gone needs no answer
}

// envelope is how an error travels.
type envelope struct {
	Error *Error `json:"error"`
}

func writeError(w http.ResponseWriter, err error) {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Status: http.StatusInternalServerError, Message: err.Error()}
	}
	status := e.Status
	if status == 0 {
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(envelope{e})
}
