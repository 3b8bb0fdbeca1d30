package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Paths of the API.
const (
	pathStatus  = "/v1/status"
	pathExplain = "/v1/explain"
	pathSpec    = "/v1/spec"
	pathDrains  = "/v1/drains"
)

// maxBody bounds a call, in bytes: a spec with thousands of tenants fits.
const maxBody = 8 << 20

// api is the operators' interface. Who may reach it was decided by the listener.
func (s *Server) api() http.Handler {
	b := &s.cfg.Backend
	mux := s.plain()
	get(mux, pathStatus, b.Status)
	get(mux, pathQueue, b.Queue)
	get(mux, pathSpec, b.Spec)
	get(mux, pathDrains, b.Drains)
	post(mux, "POST "+pathExplain, b.Explain != nil, func(r *http.Request, q ExplainQuery) (*ExplainAnswer, error) {
		return b.Explain(r.Context(), q)
	})
	post(mux, "PUT "+pathSpec, b.Apply != nil, func(r *http.Request, q ApplyRequest) (*ApplyAnswer, error) {
		return b.Apply(r.Context(), q, actor(r))
	})
	post(mux, "POST "+pathDrains, b.Drain != nil, func(r *http.Request, q DrainRequest) (*DrainAnswer, error) {
		return b.Drain(r.Context(), q, actor(r))
	})
	mux.HandleFunc("DELETE "+pathDrains, func(w http.ResponseWriter, r *http.Request) {
		if b.Undrain == nil {
			writeError(w, notHere())
			return
		}
		out, err := b.Undrain(r.Context(), r.URL.Query().Get("path"), r.URL.Query().Get("reason"), actor(r))
		answer(w, out, err)
	})
	membersAPI(mux, b)
	get(mux, pathAudit, b.Audit)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, &Error{Status: http.StatusNotFound, Message: "no such call: " + r.Method + " " + r.URL.Path})
	})
	return mux
}

// plain is what anybody who reaches the metrics listener may see.
func (s *Server) plain() *http.ServeMux {
	mux := http.NewServeMux()
	if s.cfg.Gatherer != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Gatherer, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ready := s.cfg.Backend.Ready; ready != nil {
			if err := ready(); err != nil {
				http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		io.WriteString(w, "ok\n")
	})
	return mux
}

func get[A any](mux *http.ServeMux, path string, call func(context.Context) (*A, error)) {
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		if call == nil {
			writeError(w, notHere())
			return
		}
		out, err := call(r.Context())
		answer(w, out, err)
	})
}

func post[Q, A any](mux *http.ServeMux, pattern string, have bool, call func(*http.Request, Q) (*A, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var q Q
		if !have {
			writeError(w, notHere())
			return
		}
		if err := decode(http.MaxBytesReader(w, r.Body, maxBody), &q); err != nil {
			writeError(w, BadRequest("body is not what this call takes: "+err.Error(), ""))
			return
		}
		out, err := call(r, q)
		answer(w, out, err)
	})
}

// decode is strict, so that a misspelt field is never silently without effect.
func decode(body io.Reader, into any) error {
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON value")
	}
	return nil
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
