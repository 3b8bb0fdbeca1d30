package relay

import (
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// WriteError answers with e in OpenAI's shape, or in that of the client's own protocol, with the headers that make its
// clients wait or give up rightly.
func WriteError(w http.ResponseWriter, e *openai.Error) {
	if s, ok := w.(refuser); ok {
		s.refuse(e)
		return
	}
	writeError(w, e, e.JSON())
}

func writeError(w http.ResponseWriter, e *openai.Error, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	if d := e.Retry(); d > 0 {
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
	_, _ = w.Write(body) // a caller that has left needs no answer
}

// WriteNotStarted is WriteError to the tier above, saying that no work was begun and another place may be tried.
func WriteNotStarted(w http.ResponseWriter, e *openai.Error) {
	w.Header().Set(HeaderNotStarted, "1")
	WriteError(w, e)
}
