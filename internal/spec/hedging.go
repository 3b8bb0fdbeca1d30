package spec

import "time"

// Hedging is when a local tier sends a request whose answer is overdue to a second worker as well.
type Hedging struct {
	// Enabled sends a request that has no first byte in time to another worker too: the first byte wins and the other
	// attempt is cancelled. It costs a second prefill, out of retry_budget. Default false.
	Enabled bool `yaml:"enabled"`
	// After is the least wait for the first byte. Default 500ms.
	After Duration `yaml:"after" default:"500ms"`
	// Quantile is the part of the model's recent answers that began within the wait, measured against their predictions:
	// the rest is hedged. Default 0.95.
	Quantile float64 `yaml:"quantile" default:"0.95"`
}

func (j *judge) hedge(h *Hedging) {
	j.between("$.routing.hedge.after", "after", h.After, 10*time.Millisecond, time.Minute)
	j.number("$.routing.hedge.quantile", "quantile", h.Quantile, 0.5, 0.999)
}
