package main

import (
	"context"
	"math"
	"os"
	"runtime/metrics"
	"time"

	"github.com/spillway-lb/spillway/chaos/bench/machine"
)

// parentFigures are the measurements of the parent.
type parentFigures struct {
	own, children     cpuUsage
	others            float64 // processors used by the rest of the machine
	rate              float64 // received summaries per second
	age               []time.Duration
	intervals, delays []time.Duration
	schedulingDelays  []time.Duration // how long goroutines were ready before they ran
}

// cpuUsage is a process's use of the machine's processors in a time span, and its waiting for one.
type cpuUsage struct{ cores, waited float64 }

// cpuTimes is a process's CPU and waiting time so far.
type cpuTimes struct{ used, waited time.Duration }

func readCPUTimes(pid int) (m cpuTimes, err error) {
	if m.used, err = machine.ProcessorTime(pid); err == nil {
		m.waited, err = machine.WaitingTime(pid)
	}
	return m, err
}

func (m cpuTimes) usageSince(was cpuTimes, span time.Duration) cpuUsage {
	return cpuUsage{(m.used - was.used).Seconds() / span.Seconds(), (m.waited - was.waited).Seconds() / span.Seconds()}
}

// watchParent examines all summaries ten times a second.
func (d *summaryDesk) watchParent(ctx context.Context, window time.Duration) (*parentFigures, error) {
	var w parentFigures
	was, err := readCPUTimes(os.Getpid())
	if err != nil {
		return nil, err
	}
	theirs, err := readCPUTimes(d.childrenPID)
	if err != nil {
		return nil, err
	}
	busy, err := machine.TotalCPUTime()
	if err != nil {
		return nil, err
	}
	lagged := schedulingLags()
	d.resetFigures()
	from := time.Now()
	for time.Since(from) < window {
		if !sleepContext(ctx, 100*time.Millisecond) {
			return nil, ctx.Err()
		}
		now := time.Now()
		for _, c := range d.makeView(now).Children {
			if at, ok := madeAt(c.Summary); ok {
				w.age = append(w.age, now.Sub(at))
			} else if c.Summary.Path.Instance != rogueName {
				w.age = append(w.age, c.Age)
			}
		}
	}
	span := time.Since(from)
	is, err := readCPUTimes(os.Getpid())
	if err != nil {
		return nil, err
	}
	now, err := readCPUTimes(d.childrenPID)
	if err != nil {
		return nil, err
	}
	all, err := machine.TotalCPUTime()
	if err != nil {
		return nil, err
	}
	taken := 0
	taken, w.intervals, w.delays = d.readFigures()
	w.own, w.children, w.rate = is.usageSince(was, span), now.usageSince(theirs, span), float64(taken)/span.Seconds()
	w.others = max(0, (all-busy).Seconds()/span.Seconds()-w.own.cores-w.children.cores)
	w.schedulingDelays = newSamples(lagged, schedulingLags())
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

// newSamples are the samples between two histograms, thinned, each at the upper end of its bucket.
func newSamples(was, is *metrics.Float64Histogram) (out []time.Duration) {
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
