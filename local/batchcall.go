package local

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"

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
func mergeRequests(ctx context.Context, requests []*zoneRequest, parts []*batch.RequestPart) *zoneRequest {
	v := *requests[0]
	v.httpRequest = v.httpRequest.Clone(ctx)
	v.Query.Blocks, v.Query.Exclude, v.ExcludedWorkers = nil, nil, [2]int32{-1, -1}
	if len(requests) == 1 {
		return &v
	}
	v.httpRequest.Header = http.Header{"Content-Type": {"application/json"}}
	v.Body = batch.MergeParts(parts)
	v.Envelope.Prompt, v.Envelope.User = nil, ""
	v.Envelope.ModelStart, v.Envelope.ModelEnd = 0, 0 // the merged body names the final model
	v.SetNoPrefix()                                   // the parts have nothing in common
	v.LongestInputTokens = requests[0].longestInput()
	v.Fingerprints = slices.Clone(v.Fingerprints)
	for _, o := range requests[1:] {
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
