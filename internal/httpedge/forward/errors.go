package forward

import (
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/grpcmeta"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/paths"
)

// WriteError responds with e in the shape of OpenAI's API, or of the client's own protocol, with headers such
// as Retry-After.
func WriteError(w http.ResponseWriter, e *openai.Error) {
	if s, ok := w.(errorWriter); ok {
		s.writeRefusal(e)
		return
	}
	writeError(w, e, e.JSON())
}

func writeError(w http.ResponseWriter, e *openai.Error, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	if d := e.ClampedRetryAfter(); d > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(d.Milliseconds(), 10))
		h.Set("X-Should-Retry", "true")
	}
	if e.NoRetry {
		h.Set("X-Should-Retry", "false")
	}
	if e.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="spillway"`)
	}
	w.WriteHeader(e.Status)
	_, _ = w.Write(body) // the client may be gone
}

// WriteNotStarted is WriteError for the tier above. It marks that no work was begun, so another endpoint may be
// tried.
func WriteNotStarted(w http.ResponseWriter, e *openai.Error) {
	w.Header().Set(HeaderNotStarted, "1")
	WriteError(w, e)
}

// errorWriter is a ResponseWriter whose client expects errors in another format than OpenAI's.
type errorWriter interface{ writeRefusal(e *openai.Error) }

// protocolWriter is a ResponseWriter with its own error format.
type protocolWriter struct {
	http.ResponseWriter
	writeErr   func(w http.ResponseWriter, e *openai.Error)
	errorEvent func(e *openai.Error) []byte // nil: OpenAI's
}

func (s *protocolWriter) writeRefusal(e *openai.Error) { s.writeErr(s.ResponseWriter, e) }
func (s *protocolWriter) Unwrap() http.ResponseWriter  { return s.ResponseWriter }

// WithGRPCErrors makes refusals be written as gRPC statuses.
func WithGRPCErrors(w http.ResponseWriter) http.ResponseWriter {
	return &protocolWriter{w, writeGRPCError, nil}
}

// WithAnthropicErrors makes refusals, and errors that end streams, be written in the format of Anthropic's API.
func WithAnthropicErrors(w http.ResponseWriter) http.ResponseWriter {
	write := func(w http.ResponseWriter, e *openai.Error) { writeError(w, e, e.AnthropicJSON()) }
	return &protocolWriter{w, write, (*openai.Error).AnthropicEvent}
}

// ErrorEventFor returns an error as an event in the format of the client of w.
func ErrorEventFor(w http.ResponseWriter, e *openai.Error) []byte {
	if s, ok := w.(*protocolWriter); ok && s.errorEvent != nil {
		return s.errorEvent(e)
	}
	return e.StreamEvent()
}

// writeGRPCError responds with trailers only ("Trailers-Only": a head that ends the stream).
func writeGRPCError(w http.ResponseWriter, e *openai.Error) {
	h := w.Header()
	h.Set("Content-Type", grpcmeta.ContentType)
	h.Set(grpcmeta.HeaderStatus, strconv.Itoa(grpcmeta.StatusCode(e)))
	h.Set(grpcmeta.HeaderMessage, grpcmeta.EscapeMessage(e.Error()))
	if d := e.ClampedRetryAfter(); d > 0 {
		h.Set("Grpc-Retry-Pushback-Ms", strconv.FormatInt(d.Milliseconds(), 10))
	}
	w.WriteHeader(http.StatusOK)
}

// RefuseUnserved returns the error for a Buffered request that is not served, equal in all tiers: 404 for an
// unknown path, 426 for a GET of a WebSocket path, 405 for a wrong method. It sets the headers that belong to
// the response.
func RefuseUnserved(h http.Header, r *http.Request, extra []string) *openai.Error {
	e := &openai.Error{Status: http.StatusMethodNotAllowed, Type: openai.TypeInvalidRequest, Code: openai.CodeMethodNotAllowed, NoRetry: true}
	_, lists := openai.IsModelsPath(r.URL.Path)
	_, posts := paths.MatchPath(paths.HTTP, r.URL, extra)
	_, upgrades := paths.MatchPath(paths.WebSocket, r.URL, extra)
	allow := ""
	switch {
	case lists:
		allow = http.MethodGet + ", " + http.MethodHead
	case posts:
		allow = http.MethodPost
	case upgrades && r.Method == http.MethodGet:
		e.Status, e.Message = http.StatusUpgradeRequired, "ask for a WebSocket over HTTP/1.1 here (Connection: Upgrade, Upgrade: websocket)"
		if r.ProtoMajor == 1 { // HTTP/2 and later have no Upgrade
			h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
		}
		return e
	case upgrades:
		allow = http.MethodGet
	default:
		return paths.NotFoundError(r.URL.Path)
	}
	h["Allow"] = []string{allow}
	e.Message = "use " + allow + " here"
	return e
}
