package local

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/batch"
)

// answerRecorder is an http.ResponseWriter that keeps the answer in memory.
type answerRecorder struct {
	status     int
	header     http.Header
	body       []byte
	overflowed bool
}

var errAnswerTooLarge = errors.New("the answer is too large to be kept in memory")

// Header returns the answer's header.
func (r *answerRecorder) Header() http.Header { return r.header }

// WriteHeader records the first status.
func (r *answerRecorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

// Write appends p, up to maxBatchedAnswerBytes.
func (r *answerRecorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if len(r.body)+len(p) > maxBatchedAnswerBytes {
		r.overflowed = true
		return 0, errAnswerTooLarge
	}
	if r.body == nil {
		n, err := strconv.Atoi(r.header.Get("Content-Length"))
		if err == nil && n > len(p) && n <= 16<<20 {
			r.body = make([]byte, 0, n)
		}
	}
	r.body = append(r.body, p...)
	return len(p), nil
}

// setError replaces the answer by an error.
func (r *answerRecorder) setError(e *openai.Error) {
	r.status, r.overflowed = e.Status, false
	r.header = http.Header{"Content-Type": {"application/json"}}
	r.body = e.JSON()
}

func (r *answerRecorder) toPartResponse() *partResponse {
	return &partResponse{status: r.status, header: r.header, body: batch.PartAnswer{r.body}}
}

// toFailureResponse is an error of the whole call as the response of one member. The worker's own error text is omitted: it may
// quote another member's request.
func (r *answerRecorder) toFailureResponse() *partResponse {
	s := r.toPartResponse()
	if r.header.Get(forward.HeaderRoute) != "" {
		e := openai.UpstreamFailed("the worker failed a call that several requests shared")
		s.body = batch.PartAnswer{e.JSON()}
		s.header = r.header.Clone()
		s.header.Set("Content-Type", "application/json")
	}
	return s
}

// writeTo writes a member's part of the answer.
func (s *partResponse) writeTo(w http.ResponseWriter, v *zoneRequest) {
	h := w.Header()
	for name, values := range s.header {
		h[name] = append([]string(nil), values...)
	}
	if v.hop.RequestID != "" {
		h.Set(forward.HeaderXRequestID, v.hop.RequestID)
	}
	h.Set("Content-Length", strconv.Itoa(s.body.Len()))
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(answerWriteTimeout)) // only test writers have no deadlines
	w.WriteHeader(s.status)
	for _, piece := range s.body {
		if _, err := w.Write(piece); err != nil {
			return // the client has left
		}
	}
	_ = rc.SetWriteDeadline(time.Time{}) // only test writers have no deadlines
}

// answerWriteTimeout bounds how long a client may take to read its part.
const answerWriteTimeout = time.Minute
