package main

import (
	"context"
	"math"
	"os"
	"runtime/metrics"
	"time"

	"github.com/spillway-lb/spillway/chaos/machine"
)

// watched is what was seen of the parent for a while.
type watched struct {
	own, crowd   usage
	others       float64 // processors that the rest of the machine had
	rate         float64 // statements taken a second
	age          []time.Duration
	apart, onWay []time.Duration
	runnable     []time.Duration // that goroutines were ready before they ran
}

// usage is what a process had of the machine's processors meanwhile, and wanted in vain because others had them.
type usage struct{ cores, waited float64 }

// meter is what a process has had of them so far.
type meter struct{ used, waited time.Duration }

func read(pid int) (m meter, err error) {
	if m.used, err = machine.ProcessorTime(pid); err == nil {
		m.waited, err = machine.WaitingTime(pid)
	}
	return m, err
}

func (m meter) since(was meter, span time.Duration) usage {
	return usage{(m.used - was.used).Seconds() / span.Seconds(), (m.waited - was.waited).Seconds() / span.Seconds()}
}

// watch looks at all statements ten times a second.
func (d *desk) watch(ctx context.Context, window time.Duration) (*watched, error) {
	var w watched
	was, err := read(os.Getpid())
	if err != nil {
		return nil, err
	}
	theirs, err := read(d.crowd)
	if err != nil {
		return nil, err
	}
	busy, err := machine.Busy()
	if err != nil {
		return nil, err
	}
	lagged := schedulingLags()
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
	span := time.Since(from)
	is, err := read(os.Getpid())
	if err != nil {
		return nil, err
	}
	now, err := read(d.crowd)
	if err != nil {
		return nil, err
	}
	all, err := machine.Busy()
	if err != nil {
		return nil, err
	}
	taken := 0
	taken, w.apart, w.onWay = d.noted()
	w.own, w.crowd, w.rate = is.since(was, span), now.since(theirs, span), float64(taken)/span.Seconds()
	w.others = max(0, (all-busy).Seconds()/span.Seconds()-w.own.cores-w.crowd.cores)
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
