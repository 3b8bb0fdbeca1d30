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

	"github.com/spillway-lb/spillway/internal/telemetry"
)

// Paths of the API.
const (
	pathStatus  = "/v1/status"
	pathExplain = "/v1/explain"
	pathSpec    = "/v1/spec"
	pathDrains  = "/v1/drains"
)

// paramLinearizable requests a linearizable read: the answer includes every write that completed before the call, at any node.
const paramLinearizable = "linearizable"

// maxBodyBytes bounds the body of a call, in bytes. It fits a spec with thousands of tenants.
const maxBodyBytes = 8 << 20

// apiHandler returns the handler of the API. The listener has authenticated the caller; each route checks its role.
func (s *Server) apiHandler() http.Handler { return s.identifyNode(refuseCrossSite(s.apiMux())) }

// Headers of every answer to an operator: the node that answers and its release.
const (
	headerRole    = "Spillway-Role"
	headerNode    = "Spillway-Node"
	headerVersion = "Spillway-Version"
)

// identifyNode adds the headers that name the node to the answers of a handler.
func (s *Server) identifyNode(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{headerRole: s.cfg.Role, headerNode: s.cfg.Node, headerVersion: s.cfg.Version} {
			if value != "" {
				w.Header().Set(name, value)
			}
		}
		h.ServeHTTP(w, r)
	})
}

func (s *Server) apiMux() http.Handler {
	mux := s.publicMux()
	routes := s.apiRoutes()
	for _, t := range routes {
		mux.HandleFunc(t.method+" "+t.path, s.guardRoute(t))
	}
	mux.HandleFunc("GET "+pathOpenAPI, s.guardRoute(apiRoute{minRole: RoleViewer, serve: serveDescription(routes)}))
	s.console.AddRoutes(mux)
	for path, serve := range map[string]http.HandlerFunc{
		"GET /debug/pprof/": pprof.Index, "GET /debug/pprof/profile": pprof.Profile, "GET /debug/pprof/trace": pprof.Trace,
	} {
		mux.HandleFunc(path, s.guardRoute(apiRoute{minRole: RoleOperator, serve: func(w http.ResponseWriter, r *http.Request, _ string) { serve(w, r) }}))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, &Error{Status: http.StatusNotFound, Message: "unknown call " + r.Method + " " + r.URL.Path, Hint: "GET " + pathOpenAPI + " lists the calls"})
	})
	return mux
}

// apiRoutes lists the calls in the order of the OpenAPI description.
func (s *Server) apiRoutes() []apiRoute {
	b := &s.cfg.Backend
	var explain func(context.Context, ExplainQuery, string) (*ExplainAnswer, error)
	if b.Explain != nil {
		explain = func(ctx context.Context, q ExplainQuery, _ string) (*ExplainAnswer, error) { return b.Explain(ctx, q) }
	}
	plan, planDiff, planHistory := b.planCalls()
	routes := []apiRoute{
		getRoute(pathStatus, "Return the status of the node and the tiers below it.", s.statusCall()),
		bodyRoute(http.MethodPost, pathExplain, "Explain the decisions about a request, without sending one.", explain).requireRole(RoleViewer),
		traceRoute("Return what the node and the tiers below it have recorded about a request.", b.Trace),
		getRoute(pathQueue, "Return the queues of a local instance.", b.Queue),
		getRoute(pathUplinks, "Return the sessions with the tiers above and below.", b.Uplinks),
		withLinearizable(getRoute(pathSpec, "Return the spec in force.", b.Spec), b.SpecNow),
		bodyRoute(http.MethodPut, pathSpec, "Put a new spec in force, or compute its effect.", b.Apply),
		getRoute(pathStage, "Return the staged spec and the measurements of its guard.", b.Stage),
		bodyRoute(http.MethodPost, pathStage, "Promote the staged spec, or roll it back.", b.EndStage),
		numbersRoute(pathPlan, "Return a plan: the costs of regions, displaced cells, and its origin.", []string{"epoch"}, plan),
		numbersRoute(pathPlanDiff, "Compare two plans.", []string{"from", "to"}, planDiff),
		numbersRoute(pathPlanHistory, "List the newest plans that the node received.", []string{"limit"}, planHistory),
		withLinearizable(getRoute(pathDrains, "List the drains in force.", b.Drains), b.DrainsNow),
		bodyRoute(http.MethodPost, pathDrains, "Drain a region, zone or worker.", b.Drain),
		deleteRoute(pathDrains, "path", "End the drain of a region, zone or worker.", b.Undrain),
		getRoute(pathSwitch, "Return the region switch in progress, or the last one.", b.Switch),
		bodyRoute(http.MethodPost, pathSwitch, "Move a region's clients elsewhere in checked steps, or abort that.", b.ChangeSwitch),
		getRoute(pathStopLever, "Return the stop lever, which forbids drills and drains.", b.StopLever),
		bodyRoute(http.MethodPost, pathStopLever, "End the drains of drills and forbid new drains, or allow them again.", b.SetStopLever),
		getRoute(pathDNSSEC, "Return the DNSSEC state of the zone, its public keys and the DS record for the parent zone.", b.DNSSEC),
		bodyRoute(http.MethodPost, pathDNSSEC, "Enable signing, roll the key, confirm the DS record of the parent zone, or disable signing.", b.ChangeDNSSEC).requireRole(RoleAdmin),
		bodyRoute(http.MethodPost, pathTickets, "Create a new key for redirect tickets, and optionally remove the earlier ones.", b.RotateTickets).requireRole(RoleAdmin),
		bodyRoute(http.MethodPost, pathNotifyTest, "Send a test event to every webhook of the node.", b.TestNotifications),
		getRoute(pathTenants, "Return the limits of the tenants and what they use now.", b.Tenants),
		getRoute(pathAudit, "List the newest changes: who, what, when and why.", b.Audit),
		getRoute(pathMembers, "List the global nodes.", b.Members),
		bodyRoute(http.MethodPost, pathMembers, "Add a global node to the Raft cluster.", b.AddMember).requireRole(RoleAdmin),
		deleteRoute(pathMembers, "name", "Remove a global node from the Raft cluster.", b.RemoveMember).requireRole(RoleAdmin),
		bodyRoute(http.MethodPost, pathLeader, "Transfer leadership.", b.TransferLeadership).requireRole(RoleAdmin),
		archiveRoute("Return the replicated state, including its secrets.", b.Archive).requireRole(RoleAdmin),
		restoreRoute("Put the spec and drains of an archive in force.", b.Restore).requireRole(RoleAdmin),
	}
	return append(routes, logLevelRoutes(s.cfg.Log)...)
}

// statusCall returns the Backend's Status, extended by the certificates of this node.
func (s *Server) statusCall() func(context.Context) (*Status, error) {
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
		for _, c := range s.cfg.Certificates.ListExpiries() {
			with.Certificates = append(with.Certificates, Certificate{Name: c.Name, ExpiresAt: c.EndsAt()})
		}
		return &with, nil
	}
}

// publicMux serves the paths that need no authentication.
func (s *Server) publicMux() *http.ServeMux {
	mux := http.NewServeMux()
	if s.cfg.Gatherer != nil {
		own := prometheus.NewRegistry()
		own.MustRegister(s.cfg.Certificates)
		mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{telemetry.WithEarlierNames(s.cfg.Gatherer), own}, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	}
	mux.HandleFunc("GET "+pathAutoscaling, s.serveAutoscaling)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.serveReadiness)
	return mux
}

// serveReadiness answers a readiness probe. ?verbose adds the sources of the configuration in force and their age.
func (s *Server) serveReadiness(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	text := "ok"
	if ready := s.cfg.Backend.Ready; ready != nil {
		if err := ready(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			text = "not ready: " + err.Error()
		}
	}
	fmt.Fprintln(w, text)
	if r.URL.Query().Has("verbose") {
		writeBasis(w, s.cfg.Backend.Basis)
	}
}

func notSupportedHere() *Error {
	return &Error{
		Status: http.StatusNotImplemented, Message: "this node's tier does not support this command",
		Hint: "use a global node: --server unix:///path/to/its/admin.sock",
	}
}

func writeAnswer(w http.ResponseWriter, out any, err error) {
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.Encode(out) // an error means that the client disconnected
}

// envelope is the JSON form of an error.
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

// Error is the answer to a failed call: what happened and what to do.
type Error struct {
	Status int `json:"-"` // HTTP status
	// ServerRole, ServerNode and ServerVersion are those of the node that answered, for a Client; empty for a node of an
	// earlier release.
	ServerRole    string `json:"-"`
	ServerNode    string `json:"-"`
	ServerVersion string `json:"-"`

	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	// Unknown reports that the change may have been made, or may still be made.
	Unknown bool `json:"unknown_outcome,omitempty"`
}

// Error returns the message, with the hint if there is one.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "\nhint: " + e.Hint
}

// BadRequestError refuses an invalid call.
func BadRequestError(message, hint string) *Error {
	return &Error{Status: http.StatusBadRequest, Message: message, Hint: hint}
}

// ConflictError refuses a change that conflicts with the current state.
func ConflictError(message, hint string) *Error {
	return &Error{Status: http.StatusConflict, Message: message, Hint: hint}
}

// UnknownOutcomeError reports a change that was sent to the leader and may or may not have been made.
func UnknownOutcomeError(message string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Message: message, Unknown: true}
}

// UnavailableError refuses a call that may succeed later.
func UnavailableError(message, hint string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Message: message, Hint: hint}
}
