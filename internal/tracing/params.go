package tracing

import "time"

const (
	// maxWaitingTraces bounds the traces that wait for their export, about 4 MB. More are dropped and counted.
	maxWaitingTraces = 2048
	// maxBatchTraces bounds the traces of one export. A trace of a tier has about six spans.
	maxBatchTraces = 64
	// batchInterval is how long a trace waits for others before an export.
	batchInterval = time.Second
	// exportTimeout bounds one export with its retries. While the receiver is away, one batch is dropped each time it passes.
	exportTimeout = 10 * time.Second
	// firstRetryDelay and maxRetryDelay bound the delay between the tries of one export.
	firstRetryDelay, maxRetryDelay = 500 * time.Millisecond, 4 * time.Second
	// stopTimeout bounds the last export when the process stops.
	stopTimeout = 2 * time.Second
	// maxErrorTraces bounds the traces outside the sample that are kept because of a failure, per second. During an outage
	// each request fails, and more traces of the same failure explain no more.
	maxErrorTraces = 50
	// maxAttempts bounds the attempts that a trace holds.
	maxAttempts = 16
	// maxAttributeBytes and maxAttributes bound the attributes of a span: paths and names of models are the client's.
	maxAttributeBytes, maxAttributes = 256, 64
	// MaxTerms bounds the terms of a choice: those of a local instance.
	MaxTerms = 6
	// maxTraceState bounds the tracestate header, in characters (W3C Trace Context, 3.3.1.5).
	maxTraceState = 512
)
