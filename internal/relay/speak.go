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
}

func (s *spoken) refuse(e *openai.Error)      { s.write(s.ResponseWriter, e) }
func (s *spoken) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// SpeakGRPC has refusals written as gRPC statuses.
func SpeakGRPC(w http.ResponseWriter) http.ResponseWriter { return &spoken{w, refuseCall} }

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
