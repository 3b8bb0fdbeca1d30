package regional

import (
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/tracing"
)

// finishTrace ends the trace of a request.
func (q *gatewayRequest) finishTrace(r *http.Request) {
	if q.trace == nil {
		return
	}
	a, u := &q.access, &q.usage
	record := tracing.RequestRecord{
		RequestID: q.hop.RequestID, Operation: tracing.OperationOf(q.shape), Method: r.Method, Path: r.URL.Path, Service: q.service, Class: classOf(q),
		Model: q.env.Model, Stream: q.env.Stream, MaxTokens: q.env.MaxTokens, InputTokens: u.Prompt, CachedTokens: u.Cached, OutTokens: u.Completion,
		Status: a.status, ErrorCode: a.code, Failed: a.broken, Arrived: q.arrived, Admitted: q.admitted, Ended: time.Now(), Checked: true,
	}
	if q.tenant != nil {
		record.Tenant = q.tenant.Name
	}
	if q.model != nil {
		record.ServedModel = q.model.Name
	}
	q.trace.FinishRequest(&record)
}

// traceAttempt adds the attempt to the trace of its request.
func (p *gatewayAttempt) traceAttempt() {
	q, d := p.q, &p.route.Decision
	if q.trace == nil {
		return
	}
	res := p.result
	if res == nil {
		res = &forward.Result{}
	}
	ended := res.DoneAt
	if ended.IsZero() {
		ended = time.Now()
	}
	q.trace.AddAttempt(tracing.AttemptRecord{
		Span: p.span, Chosen: p.chosenAt, FirstByte: res.FirstByteAt, Ended: ended, Endpoint: d.Path.String(), Status: res.Status, Outcome: res.Outcome.String(),
		Resumes: q.resumption.continuing, Spilled: d.IsSpilled(), Failed: res.Status >= 500 || res.Err != nil && !res.Outcome.IsClientGone(), ResumedBelow: p.isResumedBelow(),
		Choice: tracing.ChoiceRecord{
			Reason: d.Reason, CachedTokens: d.CachedTokens,
			Terms: [tracing.MaxTerms]tracing.ChoiceTerm{{Name: "ttft", Seconds: d.TTFTSeconds}, {Name: "interference", Seconds: d.Interference}},
		},
	})
}

// isResumedBelow reports whether a tier below has resumed the stream.
func (p *gatewayAttempt) isResumedBelow() bool {
	return p.answer != nil && forward.FirstValue(p.answer.Trailer, forward.HeaderResumed) != ""
}
