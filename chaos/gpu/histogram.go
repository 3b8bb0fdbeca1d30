package gpu

import (
	"sync/atomic"
	"time"
)

// histogram counts durations in fixed buckets.
type histogram struct {
	name   string
	help   string
	bounds []float64 // seconds, ascending
	counts []atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

func newHistogram(name, help string, bounds ...float64) *histogram {
	return &histogram{name: name, help: help, bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

func (h *histogram) observe(d time.Duration) {
	i, seconds := 0, d.Seconds()
	for i < len(h.bounds) && seconds > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}
