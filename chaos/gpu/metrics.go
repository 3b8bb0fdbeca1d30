package gpu

import (
	"sync/atomic"
)

// finishReason is how a request ended, in vLLM's terms.
type finishReason uint8

const (
	finishStop finishReason = iota
	finishLength
	finishAbort
	finishError
	finishReasonCount
)

func (o finishReason) String() string { return [...]string{"stop", "length", "abort", "error"}[o] }

// workerMetrics are the server's measurements in addition to the engine's counters.
type workerMetrics struct {
	endedRequests                          [finishReasonCount]atomic.Uint64
	ttft, itl, e2e, queue, prefill, decode *histogram
}

func newWorkerMetrics() *workerMetrics {
	long := []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	return &workerMetrics{
		ttft: newHistogram("time_to_first_token_seconds", "Time to first token in seconds.",
			0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
		itl: newHistogram("inter_token_latency_seconds", "Inter-token latency in seconds.",
			0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80),
		e2e:     newHistogram("e2e_request_latency_seconds", "End to end request latency in seconds.", long...),
		queue:   newHistogram("request_queue_time_seconds", "Time spent waiting in seconds.", long...),
		prefill: newHistogram("request_prefill_time_seconds", "Time spent in prefill in seconds.", long...),
		decode:  newHistogram("request_decode_time_seconds", "Time spent in decode in seconds.", long...),
	}
}

func (m *workerMetrics) countFinished(o finishReason) { m.endedRequests[o].Add(1) }

func (m *workerMetrics) resetCounts() {
	for o := range m.endedRequests {
		m.endedRequests[o].Store(0)
	}
}
