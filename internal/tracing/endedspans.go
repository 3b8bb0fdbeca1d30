package tracing

import (
	"context"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// endedSpans collects ended spans. It takes the place of the SDK's processors: Tracer has its own queue, of traces and not of
// spans, whose drops are counted.
type endedSpans struct {
	spans []sdktrace.ReadOnlySpan
}

// OnStart implements sdktrace.SpanProcessor.
func (*endedSpans) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd implements sdktrace.SpanProcessor.
func (e *endedSpans) OnEnd(s sdktrace.ReadOnlySpan) { e.spans = append(e.spans, s) }

// Shutdown implements sdktrace.SpanProcessor.
func (*endedSpans) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdktrace.SpanProcessor.
func (*endedSpans) ForceFlush(context.Context) error { return nil }
