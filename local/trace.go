package local

import (
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/httpedge/http1"
	"github.com/spillway-lb/spillway/internal/tracing"
)

// traceAttempt adds the attempt to the trace of its request.
func (m *responseObserver) traceAttempt(res *forward.Result) {
	v, at := m.request, m.attempt
	if v.trace == nil {
		return
	}
	c, cfg := &at.Choice, &m.agent.cfg
	ended := res.DoneAt
	if ended.IsZero() {
		ended = time.Now()
	}
	v.trace.AddAttempt(tracing.AttemptRecord{
		Span: m.span, Chosen: at.SentAt, FirstByte: res.FirstByteAt, Ended: ended, Endpoint: cfg.Region + "/" + cfg.Zone + "/" + at.Worker.Spec.Name,
		Status: res.Status, Outcome: res.Outcome.String(), Resumes: v.Continuing, Hedge: at.IsHedge,
		Failed: res.Status >= 500 || res.Err != nil && !res.Outcome.IsClientGone() && res.Outcome != forward.LostRace,
		Choice: tracing.ChoiceRecord{
			Reason: c.Reason, Considered: c.Considered, CachedTokens: c.CachedTokens,
			Terms: [tracing.MaxTerms]tracing.ChoiceTerm{
				{Name: "wait", Seconds: c.Terms.Wait},
				{Name: "prefill", Seconds: c.Terms.Prefill},
				{Name: "kv_wait", Seconds: c.Terms.KVWait},
				{Name: "decode", Seconds: c.Terms.Decode},
				{Name: "adapter", Seconds: c.Terms.Adapter},
				{Name: "ttft", Seconds: c.PredictedTTFT},
			},
		},
	})
}

// takeTraceLines returns header lines without traceparent, which every attempt sets, and the values of the trace headers. out
// is the slice for the lines, where there are any to leave out.
func takeTraceLines(out, lines []http1.HeadLine) (_, rest []http1.HeadLine, parent, state string) {
	found := false
	for i := range lines {
		switch line := &lines[i]; len(line.Name) {
		case len(tracing.HeaderTraceParent):
			if line.Is("traceparent") && !found {
				found, parent = true, string(line.Value)
			}
		case len(tracing.HeaderTraceState):
			if line.Is("tracestate") && state == "" {
				state = string(line.Value)
			}
		}
	}
	if !found {
		return out, lines, "", ""
	}
	for i := range lines {
		if !lines[i].Is("traceparent") {
			out = append(out, lines[i])
		}
	}
	return out, out, parent, state
}
