package experiment

import "fmt"

// loadValue is the load of this row.
func (r *PolicyRow) loadValue() float64 {
	if r.Load != nil {
		return *r.Load
	}
	return *r.Value
}

// formatLoad formats the load for a table.
func (c *CaseReport) formatLoad(r *PolicyRow) string {
	if r.Load == nil {
		return formatPlain(*r.Value)
	}
	at := *r.Load
	if c.Vary != "rate" {
		at = float64(roundToCount(at))
	}
	return fmt.Sprintf("%s (%s)", formatThreeDigits(at), formatPlain(*r.Value))
}
