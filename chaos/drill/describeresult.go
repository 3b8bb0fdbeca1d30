package drill

// describe is the figure's value in words.
func (p PhaseFigure) describe() string {
	m, _ := findMetric(p.Metric)
	if p.Missing {
		return "-"
	}
	return formatFigure(m, p.Value)
}

// describeStatus is the status with the first violation.
func (r InvariantResult) describeStatus() string {
	if r.Status == InvariantBroken {
		return string(r.Status) + ": " + r.First
	}
	return string(r.Status)
}
