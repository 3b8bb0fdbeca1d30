package lease

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// restless is the part of a limit by which a gateway's target must change before all are set anew.
const restless = 0.05

// circle is a tenant's limits in contention, and those who share them.
type circle struct {
	tenant *spec.Tenant
	whole  spec.Allowance
	day    int64
	stakes []*stake
	busy   time.Time // when it was last pressed for
}

// inherit takes over what is held after another spec came.
func (c *circle) inherit(old *circle) {
	c.busy, c.day = old.busy, old.day
	for _, s := range c.stakes {
		for _, x := range old.stakes {
			if x.holder == s.holder {
				s.held, s.offered, s.use = x.held, x.offered, x.use
			}
		}
	}
}

// quiet forgets what was asked for: who says nothing asks for nothing. What was used stays used, and what ran may still run.
func (c *circle) quiet() {
	for _, s := range c.stakes {
		s.use.RequestsMilli, s.use.TokensMilli, s.use.Wanted = 0, 0, 0
	}
}

// turn begins another day: everybody has the static share of a fresh budget.
func (c *circle) turn(day int64) {
	for _, s := range c.stakes {
		if c.day != day {
			for _, r := range []spec.Resource{spec.DayTokens, spec.DayMicros} {
				s.held[r], s.offered[r], s.target[r] = s.static[r], s.static[r], s.static[r]
			}
		}
		if s.use.Day != day {
			s.use.Day, s.use.DayTokens, s.use.DayMicros, s.use.CapTokens, s.use.CapMicros = day, 0, 0, 0, 0
		}
	}
	c.day = day
}

// atRest says that everybody has the static share, so that nobody need be told.
func (c *circle) atRest() bool {
	for _, s := range c.stakes {
		if s.held != s.static || s.offered != s.static {
			return false
		}
	}
	return true
}
