package main

import (
	"context"
	"math"
	"runtime/metrics"
	"time"
)

// watched is what was seen of the parent for a while.
type watched struct {
	cores, waited float64 // processors used, and wanted in vain because others of this machine had them
	rate          float64 // statements taken a second
	age           []time.Duration
	apart, onWay  []time.Duration
	runnable      []time.Duration // that goroutines were ready before they ran
}

// watch looks at all statements ten times a second.
func (d *desk) watch(ctx context.Context, window time.Duration) (*watched, error) {
	var w watched
	was, err := processorTime()
	if err != nil {
		return nil, err
	}
	lagged, waited := schedulingLags(), waitingTime()
	d.begin()
	from := time.Now()
	for time.Since(from) < window {
		if !sleep(ctx, 100*time.Millisecond) {
			return nil, ctx.Err()
		}
		now := time.Now()
		for _, c := range d.view(now).Children {
			if at, ok := madeAt(c.Summary); ok {
				w.age = append(w.age, now.Sub(at))
			} else if c.Summary.Path.Instance != attackName {
				w.age = append(w.age, c.Age)
			}
		}
	}
	is, err := processorTime()
	if err != nil {
		return nil, err
	}
	seconds := time.Since(from).Seconds()
	taken := 0
	taken, w.apart, w.onWay = d.noted()
	w.cores, w.waited, w.rate = (is-was).Seconds()/seconds, (waitingTime()-waited).Seconds()/seconds, float64(taken)/seconds
	w.runnable = since(lagged, schedulingLags())
	return &w, nil
}

// schedulingLags is the runtime's histogram of how long goroutines were ready before they ran.
func schedulingLags() *metrics.Float64Histogram {
	s := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindFloat64Histogram {
		return &metrics.Float64Histogram{}
	}
	return s[0].Value.Float64Histogram()
}

// since is what came between two histograms, thinned, each at the upper end of its bucket.
func since(was, is *metrics.Float64Histogram) (out []time.Duration) {
	total := uint64(0)
	for i := range is.Counts {
		total += is.Counts[i] - was.Counts[i]
	}
	every := total/10_000 + 1
	for i := range is.Counts {
		upper := is.Buckets[i+1]
		if math.IsInf(upper, 1) {
			upper = is.Buckets[i]
		}
		for range (is.Counts[i] - was.Counts[i]) / every {
			out = append(out, time.Duration(upper*float64(time.Second)))
		}
	}
	return out
}
