package tracing

import (
	"net/http"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// RequestTrace collects the trace of one request in one tier. A nil *RequestTrace collects nothing. Safe for concurrent use:
// a request may have two attempts at a time.
type RequestTrace struct {
	tracer     *Tracer
	parent     SpanID // zero: the request has no parent
	own        TraceParent
	traceState string

	mu       sync.Mutex
	finished bool
	record   RequestRecord
	refusal  *openai.Error // with which this tier ended the request; nil: it did not
	usage    openai.TokenUsage
	queuedAt time.Time // when it began to wait, while it waits
	attempts []AttemptRecord
	inline   [1]AttemptRecord // backs attempts of most requests
}

// RequestRecord is what a trace has of a request. Zero fields are left out.
type RequestRecord struct {
	RequestID string
	// Operation is the operation's name in the semantic conventions for generative AI, such as chat; Path is without the query.
	Operation, Method, Path string
	Service, Tenant, Class  string
	// Model is the model that the client named, ServedModel the resolved one.
	Model, ServedModel                   string
	Stream                               bool
	MaxTokens                            int
	InputTokens, CachedTokens, OutTokens int
	// Status is that of the response; ErrorCode the code of an error that this tier sent.
	Status    int
	ErrorCode string
	// Failed: the request failed by the fault of the fleet. Its trace is kept.
	Failed bool
	// Admitted is when every check had passed; zero: one refused the request, or the tier has no admission.
	Arrived, Admitted, Ended time.Time
	// Checked: the tier admits requests, so that there is a span for it.
	Checked bool
	// QueuedAt is when the request began to wait, if it was refused or left while it waited.
	QueuedAt time.Time
	// Redirect is the region of a redirect, and RedirectReason why it was picked.
	Redirect, RedirectReason string
}

// AttemptRecord is what a trace has of one attempt.
type AttemptRecord struct {
	Span SpanID
	// QueuedAt is when the request began to wait for this attempt; zero: it did not.
	QueuedAt time.Time
	// Chosen is the time of the choice. The attempt lasts from then to Ended. FirstByte is zero without one.
	Chosen, FirstByte, Ended time.Time
	// Endpoint is region/zone/worker, or a part of it.
	Endpoint string
	// Choice explains the choice.
	Choice ChoiceRecord
	// Status is that of the response, 0: none came. Outcome is how the attempt ended.
	Status  int
	Outcome string
	// Failed: the attempt failed by the fault of its endpoint.
	Failed bool
	// ResumedBelow: a tier below has resumed the stream. The trace is kept, although the attempt has not failed.
	ResumedBelow bool
	// Resumes: the attempt continues the interrupted stream of an earlier one.
	Resumes bool
	// Spilled: it goes to another region. Hedge: it is the second of two at a time.
	Spilled, Hedge bool
}

// ChoiceRecord explains the choice of an endpoint.
type ChoiceRecord struct {
	Reason string
	// Considered is the number of candidates; 0: not known.
	Considered int
	// CachedTokens is the part of the prompt that the endpoint is expected to have cached.
	CachedTokens int64
	// Terms are the predicted seconds of the chosen one, by term.
	Terms [MaxTerms]ChoiceTerm
}

// ChoiceTerm is one part of the predicted cost, in seconds.
type ChoiceTerm struct {
	Name    string
	Seconds float64
}

// IsSampled reports whether the trace is in the sample.
func (t *RequestTrace) IsSampled() bool { return t != nil && t.own.Sampled }

// NewAttemptSpan returns the id of an attempt's span.
func (t *RequestTrace) NewAttemptSpan() SpanID {
	if t == nil {
		return SpanID{}
	}
	return newSpanID()
}

// AppendParent appends the traceparent of a request that an attempt sends.
func (t *RequestTrace) AppendParent(b []byte, attempt SpanID) []byte {
	p := t.own
	p.Span = attempt
	return p.AppendHeader(b)
}

// SetParent sets the traceparent of a request that an attempt sends. The client's tracestate is forwarded as any other header.
func (t *RequestTrace) SetParent(h http.Header, attempt SpanID) {
	if t == nil {
		return
	}
	if t.parent == (SpanID{}) {
		delete(h, HeaderTraceState) // it belongs to no valid traceparent
	}
	h[HeaderTraceParent] = []string{string(t.AppendParent(make([]byte, 0, traceParentLen), attempt))}
}

// SetRefusal records the error with which the request is ended.
func (t *RequestTrace) SetRefusal(e *openai.Error) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refusal = e
}

// SetUsage records the tokens of the response.
func (t *RequestTrace) SetUsage(u *openai.TokenUsage) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.usage = *u
}

// SetQueued records that the request begins to wait. Its next attempt ends the wait.
func (t *RequestTrace) SetQueued(now time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queuedAt = now
}

// AddAttempt adds an attempt that has ended.
func (t *RequestTrace) AddAttempt(a AttemptRecord) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.finished || len(t.attempts) >= maxAttempts {
		return
	}
	if t.attempts == nil {
		t.attempts = t.inline[:0]
	}
	if !a.Hedge {
		a.QueuedAt, t.queuedAt = t.queuedAt, time.Time{}
	}
	t.attempts = append(t.attempts, a)
}

// FinishRequest ends the trace and queues it for its export if it is kept. Only the first call has an effect.
func (t *RequestTrace) FinishRequest(r *RequestRecord) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.finished {
		return
	}
	t.finished = true
	t.completeRecord(r)
	if !t.own.Sampled && !(t.hasFailed(r) && t.tracer.mayKeepError(r.Ended)) {
		return
	}
	t.record = *r
	t.tracer.queueTrace(t)
}

// completeRecord fills in what was recorded on the way. The caller holds the lock.
func (t *RequestTrace) completeRecord(r *RequestRecord) {
	r.QueuedAt = t.queuedAt
	if r.InputTokens+r.OutTokens == 0 {
		r.InputTokens, r.CachedTokens, r.OutTokens = t.usage.Prompt, t.usage.Cached, t.usage.Completion
	}
	if e := t.refusal; e != nil && r.ErrorCode == "" {
		r.ErrorCode, r.Status = e.Code, e.Status
	}
	if n := len(t.attempts); n > 0 && t.refusal == nil {
		last := &t.attempts[n-1]
		r.Failed = r.Failed || last.Failed
		if r.Status == 0 {
			r.Status = last.Status
		}
	}
	r.Failed = r.Failed || r.Status >= http.StatusInternalServerError
}

// hasFailed reports whether the request or one of its attempts failed. The caller holds the lock.
func (t *RequestTrace) hasFailed(r *RequestRecord) bool {
	if r.Failed {
		return true
	}
	for i := range t.attempts {
		if t.attempts[i].Failed || t.attempts[i].ResumedBelow {
			return true
		}
	}
	return false
}
