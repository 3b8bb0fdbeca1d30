package experiment

import (
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/sim"
)

func (s *SLO) toSim() sim.GoodputSLO { return sim.GoodputSLO{TTFT: s.TTFT, TPOT: s.TPOT, E2E: s.E2E} }

// String describes the objective.
func (s *SLO) String() string {
	var out []string
	if s.TTFT > 0 {
		out = append(out, "first token within "+s.TTFT.String())
	}
	if s.TPOT > 0 {
		out = append(out, "a token in "+s.TPOT.String()+" on average")
	}
	if s.E2E > 0 {
		out = append(out, "last token within "+s.E2E.String())
	}
	return strings.Join(out, ", ")
}

// String describes the staleness.
func (s *Staleness) String() string {
	scrape := "as often as in production"
	if s.Scrape > 0 {
		scrape = "every " + s.Scrape.String()
	}
	if s.Delay > 0 {
		return "workers are scraped " + scrape + ", and readings are " + s.Delay.String() + " old"
	}
	return "workers are scraped " + scrape
}

// isMet reports whether an answer with these times meets the objective.
func (s *SLO) isMet(ttft, tpot, e2e time.Duration) bool {
	within := func(v, bound time.Duration) bool { return bound == 0 || v <= bound }
	return within(ttft, s.TTFT) && within(tpot, s.TPOT) && within(e2e, s.E2E)
}
