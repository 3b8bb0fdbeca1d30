package drill

import (
	"fmt"
	"strings"
)

// resultWord returns the result of a check: holds, fails or asks.
func (c *Check) resultWord() string {
	switch {
	case c.Asks:
		return "asks"
	case c.Holds:
		return "holds"
	}
	return "fails"
}

// formatCells returns a prediction's cells of a table row.
func (p *Prediction) formatCells() []string {
	m, _ := findMetric(p.Metric)
	allowed := "-"
	if p.Within > 0 {
		allowed = formatShare(p.Within)
		if !p.Holds {
			allowed += " (missed)"
		}
	}
	return []string{string(p.Phase), p.Metric, formatFigure(m, p.Predicted), formatFigure(m, p.Measured), fmt.Sprintf("%+.1f %%", 100*p.Off), allowed}
}

// String is the check as a line.
func (c *Check) String() string {
	return fmt.Sprintf("%-5s  %s: %s", c.resultWord(), c.Text, c.Measured)
}

// String is the prediction as a line.
func (p *Prediction) String() string {
	c := p.formatCells()
	return fmt.Sprintf("%s %s: predicted %s, measured %s (%s, allowed %s)", c[0], c[1], c[2], c[3], c[4], strings.TrimSpace(c[5]))
}
