package zone

import "github.com/spillway-lb/spillway/internal/capacity"

const (
	// maxTrusts bounds the children of which it is known what they kept: all are forgotten when there are more.
	maxTrusts = 4096
	// leastTold is how many tokens must have been believed for an answer to tell anything.
	leastTold = 64
	// trustStep is how much of what is believed of a child each answer takes the place of.
	trustStep = 0.05
)

// Trusts is how much of what sessions had at their homes was still there when they came back. A child whose cache holds no
// more than what runs keeps nothing for anybody's next turn, and who believed it did would leave everybody there. It has one
// writer at a time.
type Trusts struct{ at map[capacity.Path]*trust }

type trust struct {
	part float64
	says bool // some answer has said that something was cached: engines that never do tell nothing
}

// NewTrusts believes all.
func NewTrusts() *Trusts { return &Trusts{at: map[capacity.Path]*trust{}} }

// Told learns from an answer of a child how much was cached of what was believed to be, both in tokens.
func (t *Trusts) Told(child capacity.Path, believed, cached int) {
	if believed < leastTold {
		return
	}
	c := t.at[child]
	if c == nil {
		if len(t.at) >= maxTrusts {
			clear(t.at)
		}
		c = &trust{part: 1}
		t.at[child] = c
	}
	if c.says = c.says || cached > 0; c.says {
		c.part += trustStep * (max(0, min(float64(cached)/float64(believed), 1)) - c.part)
	}
}

// Of is the part of what is believed of a child that is true, 0..1.
func (t *Trusts) Of(child capacity.Path) float64 {
	if c := t.at[child]; c != nil {
		return c.part
	}
	return 1
}
