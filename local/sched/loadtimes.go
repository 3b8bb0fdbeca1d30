package sched

import (
	"github.com/spillway-lb/spillway/internal/capacity"
)

// loadTimes holds the load times of models in seconds, as exponential moving averages.
type loadTimes map[string]float64

const (
	// maxLoadTimes bounds the models whose load times are kept.
	maxLoadTimes = 2 * capacity.MaxModels
	// loadTimeWeight is the weight of a new load time in the average.
	loadTimeWeight = 0.3
)

// Load times before any was measured, in seconds. An adapter is megabytes from a disk. A whole model of 15 GB takes
// 15 s to 48 s to read (reference/worker-model.md). vLLM wakes from level 1 in 0.1 s to 3 s.
const (
	defaultAdapterLoadSeconds = 2.0
	defaultModelLoadSeconds   = 30.0
	defaultWakeSeconds        = 3.0
)

// wakeKeyPrefix prefixes the keys of wake times in loadTimes. No model name begins with it.
const wakeKeyPrefix = "\x00wake "

func (l loadTimes) addSample(key string, seconds float64) {
	old, known := l[key]
	switch {
	case known:
		l[key] = old + loadTimeWeight*(seconds-old)
	case len(l) < maxLoadTimes:
		l[key] = seconds
	}
}

// expectedSeconds returns the average of the key, or prior before any measurement.
func (l loadTimes) expectedSeconds(key string, prior float64) float64 {
	if s, ok := l[key]; ok {
		return s
	}
	return prior
}

// movingAverage is the mean of about the last 50 values; older ones decay.
type movingAverage struct {
	mean  float64
	count int
}

func (a *movingAverage) addSample(v float64) {
	a.count++
	a.mean += (v - a.mean) / float64(min(a.count, 50))
}

func (a *movingAverage) meanOr(def float64) float64 {
	if a.count == 0 {
		return def
	}
	return a.mean
}
