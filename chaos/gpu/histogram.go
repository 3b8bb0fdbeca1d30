package gpu

import (
	"strconv"
	"sync/atomic"
	"time"
)

// histogram counts durations in fixed buckets.
type histogram struct {
	name   string
	help   string
	bounds []float64 // seconds, ascending
	labels []string  // the bounds as text, and +Inf
	counts []atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

func newHistogram(name, help string, bounds ...float64) *histogram {
	h := &histogram{name: name, help: help, bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
	for _, b := range bounds {
		h.labels = append(h.labels, strconv.FormatFloat(b, 'g', -1, 64))
	}
	h.labels = append(h.labels, "+Inf")
	return h
}

func (h *histogram) observeDuration(d time.Duration) {
	i, seconds := 0, d.Seconds()
	for i < len(h.bounds) && seconds > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}
