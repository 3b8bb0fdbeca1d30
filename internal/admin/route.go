package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"
)

// apiRoute is one call of the API: its path, the required role, and the types of its body and answer.
type apiRoute struct {
	method, path string
	summary      string
	minRole      Role
	params       []string // query parameters
	optional     bool     // all params are optional
	in, out      any      // zero values of the types, for the OpenAPI description; in is nil without a body
	serve        func(w http.ResponseWriter, r *http.Request, actor string)
}

// getRoute returns a read call. A nil call is one that this tier does not support.
func getRoute[A any](path, summary string, call func(context.Context) (*A, error)) apiRoute {
	return apiRoute{
		method: http.MethodGet, path: path, summary: summary, minRole: RoleViewer, out: *new(A),
		serve: func(w http.ResponseWriter, r *http.Request, _ string) {
			if call == nil {
				writeError(w, notSupportedHere())
				return
			}
			out, err := call(r.Context())
			writeAnswer(w, out, err)
		},
	}
}

// withLinearizable answers ?linearizable=1 by another call.
func withLinearizable[A any](t apiRoute, call func(context.Context) (*A, error)) apiRoute {
	exact, local := getRoute(t.path, t.summary, call), t.serve
	t.params = append(t.params, paramLinearizable)
	t.serve = func(w http.ResponseWriter, r *http.Request, actor string) {
		switch v := r.URL.Query().Get(paramLinearizable); v {
		case "", "0", "false":
			local(w, r, actor)
		case "1", "true":
			exact.serve(w, r, actor)
		default:
			writeError(w, BadRequestError(paramLinearizable+" is "+strconv.Quote(v), "write 1, or omit it to read this node's copy"))
		}
	}
	return t
}

// bodyRoute returns a call with a JSON body.
func bodyRoute[Q, A any](method, path, summary string, call func(context.Context, Q, string) (*A, error)) apiRoute {
	return boundedBodyRoute(maxBodyBytes, method, path, summary, call)
}

// boundedBodyRoute is bodyRoute with a limit on the body, in bytes.
func boundedBodyRoute[Q, A any](limit int, method, path, summary string, call func(context.Context, Q, string) (*A, error)) apiRoute {
	return apiRoute{
		method: method, path: path, summary: summary, minRole: RoleOperator, in: *new(Q), out: *new(A),
		serve: func(w http.ResponseWriter, r *http.Request, actor string) {
			var q Q
			if call == nil {
				writeError(w, notSupportedHere())
				return
			}
			if !isJSON(r.Header.Get("Content-Type")) {
				writeError(w, &Error{
					Status: http.StatusUnsupportedMediaType, Message: "the Content-Type of the body is not JSON",
					Hint: "send the header Content-Type: application/json",
				})
				return
			}
			if err := decodeStrict(http.MaxBytesReader(w, r.Body, int64(limit)), &q); err != nil {
				writeError(w, BadRequestError("invalid body: "+err.Error(), ""))
				return
			}
			if err := checkRequest(q); err != nil {
				writeError(w, err)
				return
			}
			out, err := call(r.Context(), q, actor)
			writeAnswer(w, out, err)
		},
	}
}

// maxDurationMS bounds the durations of drains and staged specs, in ms. Much longer ones overflow time.Duration.
const maxDurationMS = int64(366 * 24 * time.Hour / time.Millisecond)

// checkRequest refuses a body with invalid durations.
func checkRequest(q any) *Error {
	var ms int64
	switch q := q.(type) {
	case DrainRequest:
		return q.checkTimes()
	case SwitchRequest:
		return q.checkTimes()
	case ApplyRequest:
		ms = q.ForMS
	case LogLevelRequest:
		ms = q.ForMS
	}
	if ms < 0 {
		return BadRequestError("for_ms is negative", "omit it for no end")
	}
	if ms > maxDurationMS {
		return BadRequestError(fmt.Sprintf("for_ms is %d: the longest duration is 366 days", ms), "omit it for no end")
	}
	return nil
}

// deleteRoute returns a call with the name of what it removes, and the reason, in the query.
func deleteRoute[A any](path, param, summary string, call func(ctx context.Context, what, reason, actor string) (*A, error)) apiRoute {
	return apiRoute{
		method: http.MethodDelete, path: path, summary: summary, minRole: RoleOperator, params: []string{param, "reason"}, out: *new(A),
		serve: func(w http.ResponseWriter, r *http.Request, actor string) {
			if call == nil {
				writeError(w, notSupportedHere())
				return
			}
			q := r.URL.Query()
			out, err := call(r.Context(), q.Get(param), q.Get("reason"), actor)
			writeAnswer(w, out, err)
		},
	}
}

// requireRole returns the route with another required role.
func (t apiRoute) requireRole(needs Role) apiRoute {
	t.minRole = needs
	return t
}

// guardRoute serves a route to callers with the required role.
func (s *Server) guardRoute(t apiRoute) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, role := s.identifyCaller(r)
		if role < t.minRole {
			writeError(w, newDeniedError(name, role, t.minRole))
			return
		}
		t.serve(w, r, name)
	}
}

// isJSON reports whether a Content-Type is application/json. A cross-site page cannot send it without a CORS preflight.
func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == "application/json"
}

// refuseCrossSite refuses changes that a browser sends for a page of another site (CSRF).
func refuseCrossSite(h http.Handler) http.Handler {
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, &Error{
			Status: http.StatusForbidden, Message: "cross-site requests are refused",
			Hint: "use the spillway command or another program, not a page of another site",
		})
	}))
	return guard.Handler(h)
}

// decodeStrict decodes JSON and refuses unknown fields, so that misspelled ones are reported.
func decodeStrict(body io.Reader, into any) error {
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is data after the JSON value")
	}
	return nil
}
