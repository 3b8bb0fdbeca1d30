package local

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/batch"
)

// sendCall sends a merged call and fills in the response of each part. If a worker refuses the call, or its answer cannot be
// split, each part is sent alone, once: each then has its own answer or its own error.
func (b *batchDispatchers) sendCall(ctx context.Context, t *batchCall) {
	parts := t.batch.Parts()
	t.responses = make([]*partResponse, len(parts))
	m := mergeRequests(ctx, t.requests, parts)
	m.progress.started = t.reportStarted
	rec := b.serveIntoMemory(ctx, m)
	if len(parts) == 1 {
		t.responses[0] = rec.toPartResponse()
		return
	}
	cause := "refused"
	if rec.status/100 == 2 {
		if answers, ok := batch.SplitAnswer(parts, rec.body); ok {
			for i := range answers {
				t.responses[i] = &partResponse{status: rec.status, header: rec.header, body: answers[i]}
			}
			return
		}
		cause = "does_not_add_up"
	} else if !isContentRefusal(rec.status) {
		for i := range t.responses {
			t.responses[i] = rec.toFailureResponse()
		}
		return
	}
	b.splits.WithLabelValues(t.requests[0].Model, cause).Inc()
	b.sendPartsAlone(ctx, t) // a worker has received all parts already
}

// sendPartsAlone sends each part as a call of its own.
func (b *batchDispatchers) sendPartsAlone(ctx context.Context, t *batchCall) {
	var wg sync.WaitGroup
	for i := range t.requests {
		wg.Go(func() {
			m := mergeRequests(ctx, t.requests[i:i+1], t.batch.Parts()[i:i+1])
			m.progress.started = func() {}
			t.responses[i] = b.serveIntoMemory(ctx, m).toPartResponse()
		})
	}
	wg.Wait()
	t.refusedAsWhole = true
	for _, s := range t.responses {
		t.refusedAsWhole = t.refusedAsWhole && s.status/100 == 2
	}
}

// isContentRefusal reports whether a status may be caused by one part. The others concern the caller, the model or the load.
func isContentRefusal(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return status/100 == 4
}

// mergeRequests returns the request that stands for several: the first one, with the merged body of all parts.
func mergeRequests(ctx context.Context, visits []*zoneRequest, parts []*batch.RequestPart) *zoneRequest {
	v := *visits[0]
	v.httpRequest = v.httpRequest.Clone(ctx)
	v.Query.Blocks, v.Query.Exclude, v.ExcludedWorkers = nil, nil, [2]int32{-1, -1}
	if len(visits) == 1 {
		return &v
	}
	v.httpRequest.Header = http.Header{"Content-Type": {"application/json"}}
	v.Body = batch.MergeParts(parts)
	v.Envelope.Prompt, v.Envelope.User = nil, ""
	v.Envelope.ModelStart, v.Envelope.ModelEnd = 0, 0 // the merged body names the final model
	v.SetNoPrefix()                                   // the parts have nothing in common
	v.LongestInputTokens = visits[0].longestInput()
	v.Fingerprints = slices.Clone(v.Fingerprints)
	for _, o := range visits[1:] {
		v.Fingerprints = append(v.Fingerprints, o.Fingerprints...)
		v.OfSeveralTenants = v.OfSeveralTenants || o.Tenant != v.Tenant
		v.EstimatedTokens += o.EstimatedTokens
		v.LongestInputTokens = max(v.LongestInputTokens, o.longestInput())
		v.RetriesLeft = max(v.RetriesLeft, o.RetriesLeft)
		if o.Deadline.IsZero() || !v.Deadline.IsZero() && o.Deadline.After(v.Deadline) {
			v.Deadline = o.Deadline // each member enforces its own deadline
		}
	}
	return &v
}

// longestInput is the longest input of a request, in tokens.
func (v *zoneRequest) longestInput() int64 {
	if v.LongestInputTokens > 0 {
		return v.LongestInputTokens
	}
	return v.EstimatedTokens
}

// serveIntoMemory serves a request and returns the recorded answer.
func (b *batchDispatchers) serveIntoMemory(ctx context.Context, v *zoneRequest) (rec *answerRecorder) {
	rec = &answerRecorder{header: http.Header{}}
	defer func() {
		// The panic value http.ErrAbortHandler means that the answer broke off; no client has received any of it yet.
		if p := recover(); p != nil {
			if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			rec.setError(openai.UpstreamLost())
		}
		if rec.overflowed {
			rec.setError(openai.UpstreamFailed("the answer is larger than " + strconv.Itoa(maxBatchedAnswerBytes) + " bytes"))
		}
		if rec.status == 0 {
			rec.setError(openai.UpstreamFailed("the call ended without an answer"))
		}
	}()
	b.agent.attempts.serveRequest(rec, v)
	return rec
}

// maxBatchedAnswerBytes bounds an answer that is held in memory, in bytes: about 2,000 vectors of 4,096 numbers.
const maxBatchedAnswerBytes = 128 << 20

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
