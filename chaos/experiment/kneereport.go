package experiment

import "fmt"

// loadAt is the load that a value stands for.
func (k *KneeReport) loadAt(value float64) float64 {
	if k == nil || k.Load > 0 {
		return value
	}
	return value * k.Value
}

// describeKnee describes what the loads are fractions of.
func (c *CaseReport) describeKnee() string {
	k := c.Knee
	if k == nil {
		return ""
	}
	where := ""
	if k.Case != "" {
		where = " in the case " + k.Case
	}
	vary := c.Vary
	if k.Load > 0 {
		vary = "rate"
	}
	what := FormatFigure(k.Value, capacityUnit(vary))
	if vary != "rate" {
		what = formatThreeDigits(k.Value) + " " + vary
	}
	knee := fmt.Sprintf("%s, the most that %s sustains%s (%s of requests within the SLO)", what, k.Policy, where, FormatFigure(k.Attainment, "%"))
	if k.Load > 0 {
		return fmt.Sprintf("%s times %s", formatPlain(k.Load), knee)
	}
	return "1 is " + knee
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
