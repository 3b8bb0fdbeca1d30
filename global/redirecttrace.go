package global

import (
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/tracing"
)

// redirectTrace is the trace of a request at the redirect endpoint. nil: it is not traced.
type redirectTrace struct {
	trace  *tracing.RequestTrace
	record tracing.RequestRecord
}

// beginTrace begins the trace of a request.
func beginTrace(tracer *tracing.Tracer, r *http.Request) *redirectTrace {
	t := tracer.BeginHTTPRequest(r.Header)
	if t == nil {
		return nil
	}
	return &redirectTrace{trace: t, record: tracing.RequestRecord{Method: r.Method, Path: r.URL.Path, Arrived: time.Now()}}
}

// setRegion records the region of a redirect, and why it was picked.
func (t *redirectTrace) setRegion(c *redirectCaller, region int, reason string) {
	if t == nil {
		return
	}
	spec := c.snapshot.Spec
	t.record.Tenant, t.record.Service = c.tenant.Name, spec.Services[c.service].Name
	t.record.Redirect, t.record.RedirectReason = spec.Regions[region].Name, reason
}

// finishTrace ends the trace. refusal is the error that the client received, nil for none.
func (t *redirectTrace) finishTrace(status int, refusal *openai.Error) {
	if t == nil {
		return
	}
	if refusal != nil {
		t.trace.SetRefusal(refusal)
	}
	t.record.Status, t.record.Ended = status, time.Now()
	t.trace.FinishRequest(&t.record)
}

// newAttempt begins an attempt at a region and sets its traceparent.
func (t *redirectTrace) newAttempt(h http.Header) (a tracing.AttemptRecord) {
	if t == nil {
		return a
	}
	a.Span, a.Chosen = t.trace.NewAttemptSpan(), time.Now()
	t.trace.SetParent(h, a.Span)
	return a
}

// addAttempt adds an attempt that has ended.
func (t *redirectTrace) addAttempt(a tracing.AttemptRecord, region string, res *forward.Result) {
	if t == nil {
		return
	}
	a.Endpoint, a.FirstByte, a.Ended, a.Status, a.Outcome = region, res.FirstByteAt, time.Now(), res.Status, res.Outcome.String()
	a.Failed = res.Status >= 500 || res.Err != nil && !res.Outcome.IsClientGone()
	a.Choice.Reason = "plan"
	t.trace.AddAttempt(a)
}
