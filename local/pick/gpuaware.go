package pick

// Weights of the composite, and the sizes at which a component is one half. Min-max scaling would make a queue of one
// versus two look like none versus all.
const (
	weightQueue, weightGPU, weightKV, weightLatency = 0.4, 0.3, 0.2, 0.1

	queueHalfPoint   = 4.0 // requests
	latencyHalfPoint = 1.0 // seconds
)

// chooseGPUAware picks the worker with the least composite of queue, GPU, KV cache and latency; near-ties at random.
func (v *WorkerView) chooseGPUAware() int32 {
	for _, at := range v.candidates {
		v.costs[at] = v.compositeScore(at) / v.costInputs[at].effectiveWeight
	}
	return v.pickCheapest(func(best float64) float64 { return max(0.005, relativeTieSlack(best)) })
}

func (v *WorkerView) compositeScore(at int32) float64 {
	b := &v.costInputs[at]
	kv := 0.0
	if b.kvTotal > 0 {
		kv = v.kvUsageOn(at, b.kvTotal)
	}
	return weightQueue*saturateAt(v.queuedRequestsOn(at), queueHalfPoint) + weightGPU*min(v.gpuBusyOn(at), 1) + weightKV*kv +
		weightLatency*saturateAt(v.Workers[at].Latency.PeakSeconds(b.prefillBase, v.wallClock), latencyHalfPoint)
}

// saturateAt grows from 0 toward 1 and is one half at x = size.
func saturateAt(x, size float64) float64 { return x / (x + size) }
