package local

import "github.com/spillway-lb/spillway/internal/capacity"

// loadTimes are the load times of models in seconds, as averages that forget.
type loadTimes map[string]float64

const (
	// maxLoadTimes bounds the models whose load times are remembered.
	maxLoadTimes = 2 * capacity.MaxModels
	// loadWeight is what a new load time counts beside what was known.
	loadWeight = 0.3
)

// Load times before any was measured, in seconds. An adapter is megabytes from a disk; a whole model of 15 GB takes 15 s
// to 48 s to read (reference/worker-model.md); vLLM wakes from level 1 in 0.1 s to 3 s.
const (
	adapterLoad = 2.0
	modelLoad   = 30.0
	wakeLoad    = 3.0
)

// keyWake stands for a worker's waking among the load times. No model is called so.
const keyWake = "\x00wake "

func (l loadTimes) add(key string, seconds float64) {
	old, known := l[key]
	switch {
	case known:
		l[key] = old + loadWeight*(seconds-old)
	case len(l) < maxLoadTimes:
		l[key] = seconds
	}
}

// expect is how long a load is expected to take: as the last ones did, or as such ones do.
func (l loadTimes) expect(key string, prior float64) float64 {
	if s, ok := l[key]; ok {
		return s
	}
	return prior
}

// loadSeconds is how long a worker is expected to take to load a model.
func (f *floor) loadSeconds(w *worker, model string, p *place) float64 {
	prior := modelLoad
	if p.parent != "" && w.takesAdapters() {
		prior = adapterLoad
	}
	return f.loads.expect(model, prior)
}

// wakeSeconds is how long a worker is expected to take to wake up.
func (f *floor) wakeSeconds(w *worker) float64 {
	return f.loads.expect(keyWake+w.declared.Name, wakeLoad)
}
