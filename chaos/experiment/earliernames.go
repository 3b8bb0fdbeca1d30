package experiment

import "regexp"

// affectedName is the figure that affectedShare computes.
const affectedName = "affected"

// earlierFigure matches the name of that figure before the renaming. It is accepted for one release.
var earlierFigure = regexp.MustCompile(`\bstruck\b`)

// adoptEarlierNames replaces names of the last release by those in use, and records a warning for each.
func (e *Experiment) adoptEarlierNames() {
	send := e.SLO.adoptEarlierNames()
	for i := range e.Cases {
		send = e.Cases[i].SLO.adoptEarlierNames() || send
	}
	if send {
		e.warnEarlierName("slo.told", "slo.send")
	}
	figure := false
	for i := range e.Across {
		if e.Across[i] == "struck" {
			e.Across[i], figure = affectedName, true
		}
	}
	for i := range e.Pass {
		if l := &e.Pass[i]; earlierFigure.MatchString(l.Line) {
			l.Line, figure = earlierFigure.ReplaceAllString(l.Line, affectedName), true
		}
	}
	if figure {
		e.warnEarlierName("the figure struck", affectedName)
	}
}

func (e *Experiment) warnEarlierName(earlier, name string) {
	e.Warnings = append(e.Warnings, earlier+" is now called "+name+": write that; the earlier name is removed in the next release")
}

// adoptEarlierNames reports whether a name of the last release was used.
func (s *SLO) adoptEarlierNames() bool {
	if s == nil || !s.EarlierSend {
		return false
	}
	s.Send = true
	return true
}
