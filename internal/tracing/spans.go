package tracing

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Names of spans. The span of the request is named by the semantic conventions for generative AI: operation and model.
const (
	spanAdmission = "admission"
	spanQueue     = "queue"
	spanChoice    = "choice"
	spanAttempt   = "attempt"
	spanPrefill   = "prefill"
	spanDecode    = "decode"
	spanResume    = "resume"
	spanRedirect  = "redirect"
)

// spanBuilder builds the spans of traces with the SDK. Only one goroutine uses it.
type spanBuilder struct {
	tracer trace.Tracer
	ids    *chosenIDs
	ended  *endedSpans
}

func newSpanBuilder(cfg *Config) *spanBuilder {
	attrs := []attribute.KeyValue{attribute.String("service.namespace", "spillway"), attribute.String("service.name", "spillway-"+cfg.Tier)}
	for key, value := range map[string]string{
		"service.instance.id": cfg.Node, "service.version": cfg.Version, "spillway.tier": cfg.Tier, "spillway.region": cfg.Region, "spillway.zone": cfg.Zone,
	} {
		if value != "" {
			attrs = append(attrs, attribute.String(key, value))
		}
	}
	b := &spanBuilder{ids: &chosenIDs{}, ended: &endedSpans{}}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithResource(resource.NewSchemaless(attrs...)), sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithIDGenerator(b.ids), sdktrace.WithSpanProcessor(b.ended),
		sdktrace.WithRawSpanLimits(sdktrace.SpanLimits{AttributeValueLengthLimit: maxAttributeBytes, AttributeCountLimit: maxAttributes}),
	)
	b.tracer = provider.Tracer("github.com/spillway-lb/spillway", trace.WithInstrumentationVersion(cfg.Version))
	return b
}

// takeSpans returns the spans that were built since the last call.
func (b *spanBuilder) takeSpans() []sdktrace.ReadOnlySpan {
	out := b.ended.spans
	b.ended.spans = nil
	return out
}

// builtSpan describes one span.
type builtSpan struct {
	name       string
	id         SpanID
	kind       trace.SpanKind
	start, end time.Time
	attrs      []attribute.KeyValue
	failure    string // empty: it did not fail
}

// addSpan builds a span under parent and returns its context, for its children. The end is never before the start.
func (b *spanBuilder) addSpan(parent trace.SpanContext, s builtSpan) trace.SpanContext {
	b.ids.span = trace.SpanID(s.id)
	if s.id == (SpanID{}) {
		b.ids.span = trace.SpanID(newSpanID())
	}
	ctx := context.Background()
	if parent.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, parent)
	}
	_, span := b.tracer.Start(ctx, s.name, trace.WithSpanKind(s.kind), trace.WithTimestamp(s.start), trace.WithAttributes(s.attrs...))
	if s.failure != "" {
		span.SetStatus(codes.Error, s.failure)
		span.SetAttributes(attribute.String("error.type", s.failure))
	}
	end := s.end
	if end.Before(s.start) {
		end = s.start
	}
	span.End(trace.WithTimestamp(end))
	return span.SpanContext()
}

// addTrace builds the spans of one request.
func (b *spanBuilder) addTrace(t *RequestTrace) {
	t.mu.Lock() // an attempt that lost a race may still end
	defer t.mu.Unlock()
	r := &t.record
	state, _ := trace.ParseTraceState(t.traceState) // an invalid one counts as none
	parent := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(t.own.Trace), SpanID: trace.SpanID(t.parent), TraceFlags: trace.FlagsSampled, TraceState: state, Remote: true,
	})
	b.ids.trace = trace.TraceID(t.own.Trace)
	own := b.addSpan(parent, builtSpan{name: spanName(r), id: t.own.Span, kind: trace.SpanKindServer, start: r.Arrived, end: r.Ended, attrs: requestAttrs(r, t.attempts), failure: requestFailure(r)})
	if r.Checked {
		b.addAdmission(own, r)
	}
	if r.Redirect != "" {
		b.addSpan(own, builtSpan{name: spanRedirect, start: r.Arrived, end: r.Ended, attrs: []attribute.KeyValue{
			attribute.String("spillway.redirect.region", r.Redirect), attribute.String("spillway.redirect.reason", r.RedirectReason),
		}})
	}
	slices.SortStableFunc(t.attempts, func(a, b AttemptRecord) int { return a.Chosen.Compare(b.Chosen) })
	for i := range t.attempts {
		a := &t.attempts[i]
		if a.Resumes && i > 0 {
			b.addResume(own, &t.attempts[i-1], a)
		}
		b.addAttempt(own, a)
	}
	if !r.QueuedAt.IsZero() {
		b.addSpan(own, builtSpan{name: spanQueue, start: r.QueuedAt, end: r.Ended, failure: cmp.Or(r.ErrorCode, "client_gone")})
	}
}

// addAdmission adds the span of the checks before the choice. A request that failed one has no attempt.
func (b *spanBuilder) addAdmission(own trace.SpanContext, r *RequestRecord) {
	s := builtSpan{name: spanAdmission, start: r.Arrived, end: r.Admitted}
	if r.Admitted.IsZero() {
		s.end, s.failure = r.Ended, cmp.Or(r.ErrorCode, "refused")
	}
	b.addSpan(own, s)
}

// addAttempt adds the spans of one attempt: the wait before it, the choice, and its phases.
func (b *spanBuilder) addAttempt(own trace.SpanContext, a *AttemptRecord) {
	if !a.QueuedAt.IsZero() {
		b.addSpan(own, builtSpan{name: spanQueue, start: a.QueuedAt, end: a.Chosen})
	}
	b.addSpan(own, builtSpan{name: spanChoice, start: a.Chosen, end: a.Chosen, attrs: choiceAttrs(a)})
	attrs := []attribute.KeyValue{attribute.String("spillway.endpoint", a.Endpoint), attribute.String("spillway.attempt.outcome", a.Outcome)}
	if a.Status != 0 {
		attrs = append(attrs, attribute.Int("http.response.status_code", a.Status))
	}
	for key, on := range map[string]bool{"spillway.attempt.resumes": a.Resumes, "spillway.attempt.resumed_below": a.ResumedBelow, "spillway.attempt.spilled": a.Spilled, "spillway.attempt.hedge": a.Hedge} {
		if on {
			attrs = append(attrs, attribute.Bool(key, true))
		}
	}
	s := builtSpan{name: spanAttempt, id: a.Span, kind: trace.SpanKindClient, start: a.Chosen, end: a.Ended, attrs: attrs}
	if a.Failed {
		s.failure = a.Outcome
	}
	attempt := b.addSpan(own, s)
	if a.FirstByte.IsZero() {
		return
	}
	b.addSpan(attempt, builtSpan{name: spanPrefill, start: a.Chosen, end: a.FirstByte})
	b.addSpan(attempt, builtSpan{name: spanDecode, start: a.FirstByte, end: a.Ended, failure: s.failure})
}

// addResume adds the span of an interruption: from the end of the interrupted attempt to the first byte of the next.
func (b *spanBuilder) addResume(own trace.SpanContext, interrupted, next *AttemptRecord) {
	s := builtSpan{name: spanResume, start: interrupted.Ended, end: next.FirstByte, attrs: []attribute.KeyValue{
		attribute.String("spillway.resume.from", interrupted.Endpoint), attribute.String("spillway.resume.to", next.Endpoint),
	}}
	if next.FirstByte.IsZero() {
		s.end, s.failure = next.Ended, next.Outcome
	}
	b.addSpan(own, s)
}

// spanName names the span of a request.
func spanName(r *RequestRecord) string {
	switch {
	case r.Operation != "" && r.ServedModel != "": // not the client's name, which may be anything
		return r.Operation + " " + r.ServedModel
	case r.Operation != "":
		return r.Operation
	}
	return cmp.Or(r.Method, "request")
}

// requestFailure returns the type of a request's failure; empty for none. An error of the client is none.
func requestFailure(r *RequestRecord) string {
	switch {
	case !r.Failed:
		return ""
	case r.ErrorCode != "":
		return r.ErrorCode
	case r.Status >= 500:
		return strconv.Itoa(r.Status)
	}
	return "broken"
}

// requestAttrs returns the attributes of a request, by the semantic conventions for HTTP and for generative AI where those have
// a name.
func requestAttrs(r *RequestRecord, attempts []AttemptRecord) (out []attribute.KeyValue) {
	for _, f := range [...]struct{ key, value string }{
		{"spillway.request.id", r.RequestID},
		{"http.request.method", r.Method},
		{"url.path", r.Path},
		{"gen_ai.operation.name", r.Operation},
		{"gen_ai.request.model", r.Model},
		{"gen_ai.response.model", r.ServedModel},
		{"spillway.service", r.Service},
		{"spillway.tenant", r.Tenant},
		{"spillway.class", r.Class},
		{"spillway.error.code", r.ErrorCode},
	} {
		if f.value != "" {
			out = append(out, attribute.String(f.key, f.value))
		}
	}
	for _, f := range [...]struct {
		key   string
		value int
	}{
		{"http.response.status_code", r.Status},
		{"gen_ai.request.max_tokens", r.MaxTokens},
		{"gen_ai.usage.input_tokens", r.InputTokens},
		{"gen_ai.usage.output_tokens", r.OutTokens},
		{"gen_ai.usage.cache_read.input_tokens", r.CachedTokens},
	} {
		if f.value > 0 {
			out = append(out, attribute.Int(f.key, f.value))
		}
	}
	if r.Operation != "" {
		out = append(out, attribute.String("gen_ai.provider.name", "spillway"), attribute.Bool("gen_ai.request.stream", r.Stream))
	}
	return append(out, attribute.Int("spillway.attempts", len(attempts)))
}

// choiceAttrs returns the explanation of a choice.
func choiceAttrs(a *AttemptRecord) []attribute.KeyValue {
	c := &a.Choice
	out := []attribute.KeyValue{attribute.String("spillway.choice.chosen", a.Endpoint), attribute.String("spillway.choice.reason", c.Reason)}
	if c.Considered > 0 {
		out = append(out, attribute.Int("spillway.choice.considered", c.Considered))
	}
	if c.CachedTokens > 0 {
		out = append(out, attribute.Int64("spillway.choice.cached_tokens", c.CachedTokens))
	}
	for _, t := range c.Terms {
		if t.Name != "" {
			out = append(out, attribute.Float64("spillway.choice.seconds."+t.Name, t.Seconds))
		}
	}
	return out
}

// chosenIDs gives the next span the ids that the request has sent to the next tier.
type chosenIDs struct {
	trace trace.TraceID
	span  trace.SpanID
}

// NewIDs implements sdktrace.IDGenerator.
func (c *chosenIDs) NewIDs(context.Context) (trace.TraceID, trace.SpanID) { return c.trace, c.span }

// NewSpanID implements sdktrace.IDGenerator.
func (c *chosenIDs) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return c.span }
