package spec

import "time"

// HedgePolicy controls when a local tier sends an overdue request to a second worker.
type HedgePolicy struct {
	// Enabled sends a request without a first byte in time to another worker too: the first response wins and
	// the other attempt is cancelled. It costs a second prefill, charged to retry_budget. Default false.
	Enabled bool `yaml:"enabled"`
	// After is the minimum wait for the first byte. Default 500ms.
	After Duration `yaml:"after" default:"500ms"`
	// Quantile is the fraction of the model's recent responses that began within the wait, relative to their
	// predictions: the rest is hedged. Default 0.95.
	Quantile float64 `yaml:"quantile" default:"0.95"`
}

func (j *validator) checkHedge(h *HedgePolicy) {
	j.checkDuration("$.routing.hedge.after", "after", h.After, 10*time.Millisecond, time.Minute)
	j.checkNumber("$.routing.hedge.quantile", "quantile", h.Quantile, 0.5, 0.999)
}
