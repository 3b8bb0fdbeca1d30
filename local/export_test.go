package local

import "github.com/prometheus/client_golang/prometheus/testutil"

// Riding counts the requests for a model that are on its bus.
func (a *Agent) Riding(model string) int {
	return int(testutil.ToFloat64(a.batcher.riding.WithLabelValues(model)))
}

// SpendAll takes every retry that is saved up.
func (a *Agent) SpendAll() {
	a.floor.mu.Lock()
	defer a.floor.mu.Unlock()
	a.floor.budget = -1000
}
