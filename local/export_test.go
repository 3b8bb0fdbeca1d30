package local

import "github.com/prometheus/client_golang/prometheus/testutil"

// Riding counts the requests for a model that are on its bus.
func (a *Agent) Riding(model string) int {
	return int(testutil.ToFloat64(a.batcher.riding.WithLabelValues(model)))
}
