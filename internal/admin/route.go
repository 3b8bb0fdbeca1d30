package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
)

// route is one call of the API: what it is, who may make it, and what it takes and answers.
type route struct {
	method, path string
	summary      string
	needs        Role
	params       []string // of the query
	optional     bool     // none of the params is needed
	in, out      any      // zero values, for the description; in is nil without a body
	serve        func(w http.ResponseWriter, r *http.Request, actor string)
}

// look is a call that changes nothing. A nil call is one that this tier does not have.
func look[A any](path, summary string, call func(context.Context) (*A, error)) route {
	return route{
		method: http.MethodGet, path: path, summary: summary, needs: Viewer, out: *new(A),
		serve: func(w http.ResponseWriter, r *http.Request, _ string) {
			if call == nil {
				writeError(w, notHere())
				return
			}
			out, err := call(r.Context())
			answer(w, out, err)
		},
	}
}

// exactly has ?linearizable=1 answered by another call.
func exactly[A any](t route, call func(context.Context) (*A, error)) route {
	exact, local := look(t.path, t.summary, call), t.serve
	t.params = append(t.params, paramLinearizable)
	t.serve = func(w http.ResponseWriter, r *http.Request, actor string) {
		switch v := r.URL.Query().Get(paramLinearizable); v {
		case "", "0", "false":
			local(w, r, actor)
		case "1", "true":
			exact.serve(w, r, actor)
		default:
			writeError(w, BadRequest(paramLinearizable+" is "+strconv.Quote(v), "write 1, or leave it out to read what this node has"))
		}
	}
	return t
}

// change is a call with a body.
func change[Q, A any](method, path, summary string, call func(context.Context, Q, string) (*A, error)) route {
	return changeWithin(maxBody, method, path, summary, call)
}

// changeWithin is change with a bound of its own on the body, in bytes.
func changeWithin[Q, A any](most int, method, path, summary string, call func(context.Context, Q, string) (*A, error)) route {
	return route{
		method: method, path: path, summary: summary, needs: Operator, in: *new(Q), out: *new(A),
		serve: func(w http.ResponseWriter, r *http.Request, actor string) {
			var q Q
			if call == nil {
				writeError(w, notHere())
				return
			}
			if !isJSON(r.Header.Get("Content-Type")) {
				writeError(w, &Error{
					Status: http.StatusUnsupportedMediaType, Message: "the body is not declared as JSON",
					Hint: "send the header Content-Type: application/json",
				})
				return
			}
			if err := decode(http.MaxBytesReader(w, r.Body, int64(most)), &q); err != nil {
				writeError(w, BadRequest("body is not what this call takes: "+err.Error(), ""))
				return
			}
			out, err := call(r.Context(), q, actor)
			answer(w, out, err)
		},
	}
}

// remove is a call that takes what it removes, and why, in the query.
func remove[A any](path, param, summary string, call func(ctx context.Context, what, reason, actor string) (*A, error)) route {
	return route{
		method: http.MethodDelete, path: path, summary: summary, needs: Operator, params: []string{param, "reason"}, out: *new(A),
		serve: func(w http.ResponseWriter, r *http.Request, actor string) {
			if call == nil {
				writeError(w, notHere())
				return
			}
			q := r.URL.Query()
			out, err := call(r.Context(), q.Get(param), q.Get("reason"), actor)
			answer(w, out, err)
		},
	}
}

// by is the route for callers of a role.
func (t route) by(needs Role) route {
	t.needs = needs
	return t
}

// guarded serves a route to those who may.
func (s *Server) guarded(t route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, role := s.caller(r)
		if role < t.needs {
			writeError(w, denied(name, role, t.needs))
			return
		}
		t.serve(w, r, name)
	}
}

// isJSON reports whether a Content-Type is JSON's. A page of another site cannot send that without asking first.
func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == "application/json"
}

// sameSite refuses changes that a browser sends on behalf of a page of another site.
func sameSite(h http.Handler) http.Handler {
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, &Error{
			Status: http.StatusForbidden, Message: "cross-site requests are refused",
			Hint: "call the node with the spillway command or another program, not from a page of another site",
		})
	}))
	return guard.Handler(h)
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
