package pick

// The composite's weights, and the sizes at which a part of it is half full: min-max scaling would make a queue of one
// against two look like none against all.
const (
	partQueue, partGPU, partKV, partLatency = 0.4, 0.3, 0.2, 0.1

	halfQueue   = 4.0 // requests
	halfLatency = 1.0 // seconds
)

// gpuAware takes the worker with the least composite of queue, GPU, KV cache and latency, near-ties at random.
func (v *View) gpuAware() int32 {
	for _, at := range v.cands {
		v.costs[at] = v.composite(at) / v.brief[at].power
	}
	return v.lightest(func(best float64) float64 { return max(0.005, nearTieOf(best)) })
}

func (v *View) composite(at int32) float64 {
	b := &v.brief[at]
	kv := 0.0
	if b.kv > 0 {
		kv = v.full(at, b.kv)
	}
	return partQueue*half(v.queued(at), halfQueue) + partGPU*min(v.busy(at), 1) + partKV*kv +
		partLatency*half(v.Workers[at].Latency.Peak(b.base, v.when), halfLatency)
}

// half grows from 0 towards 1 and is one half at size.
func half(x, size float64) float64 { return x / (x + size) }
