package relay

import (
	"net/http"
	"strconv"

	"github.com/spillway-lb/spillway/internal/grpcwire"
	"github.com/spillway-lb/spillway/internal/openai"
)

// refuser is a ResponseWriter whose client reads errors in another form than OpenAI's.
type refuser interface{ refuse(e *openai.Error) }

// spoken is a ResponseWriter with a form of its own.
type spoken struct {
	http.ResponseWriter
	write func(w http.ResponseWriter, e *openai.Error)
	event func(e *openai.Error) []byte // nil: OpenAI's
}

func (s *spoken) refuse(e *openai.Error)      { s.write(s.ResponseWriter, e) }
func (s *spoken) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// SpeakGRPC has refusals written as gRPC statuses.
func SpeakGRPC(w http.ResponseWriter) http.ResponseWriter { return &spoken{w, refuseCall, nil} }

// SpeakAnthropic has refusals, and the errors that end streams, written in the shape of Anthropic's API.
func SpeakAnthropic(w http.ResponseWriter) http.ResponseWriter {
	write := func(w http.ResponseWriter, e *openai.Error) { writeError(w, e, e.AnthropicJSON()) }
	return &spoken{w, write, (*openai.Error).AnthropicEvent}
}

// EventOf is an error as the client of w reads it inside a stream.
func EventOf(w http.ResponseWriter, e *openai.Error) []byte {
	if s, ok := w.(*spoken); ok && s.event != nil {
		return s.event(e)
	}
	return e.Event()
}

// refuseCall answers with trailers alone ("Trailers-Only": a head that ends the stream).
func refuseCall(w http.ResponseWriter, e *openai.Error) {
	h := w.Header()
	h.Set("Content-Type", grpcwire.ContentType)
	h.Set(grpcwire.HeaderStatus, strconv.Itoa(grpcwire.Code(e)))
	h.Set(grpcwire.HeaderMessage, grpcwire.Escape(e.Error()))
	if d := e.Retry(); d > 0 {
		h.Set("Grpc-Retry-Pushback-Ms", strconv.FormatInt(d.Milliseconds(), 10))
	}
	w.WriteHeader(http.StatusOK)
}
