package forward

import (
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
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
