package forward

import (
	"net/http"
	"strconv"

	"github.com/spillway-lb/spillway/internal/grpcmeta"
	"github.com/spillway-lb/spillway/internal/openai"
)

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
