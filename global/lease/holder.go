package lease

import (
	"math"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// holder is one gateway of the spec, as far as the leader knows.
type holder struct {
	id     spec.Holder
	report *Report // nil: not heard
	// ruled: it goes by what we offer. Otherwise it is told to hold, and what it may spend is guessed from above.
	ruled  bool
	number uint64 // of the last word; 0: none yet
	hold   bool   // what the word is, if not a list
	acked  bool   // the list is in force there
	held   bool   // it has confirmed a word of this term
	told   bool   // the list has gone out, so that it stays as it is until it is acknowledged
	// granted is when it was last told a list: that lapses by spec.LeaseFor later, by our clock.
	granted time.Time
}

// in says that a gateway has lately heard us, in this term.
func (l *Leader) in(h *holder) bool {
	return h.report != nil && h.report.Holding.Term == l.term &&
		h.report.Age+time.Duration(h.report.Holding.AgeMillis)*time.Millisecond <= touch
}

// dark says that some gateway may hold anything that the leader before has granted: until that is over, or all have
// confirmed that they hold no more than their static shares, nobody gets a list, which would raise others to theirs.
func (l *Leader) dark(now time.Time) bool {
	if now.Sub(l.since) > spec.LeaseFor+2*delay {
		return false
	}
	for _, h := range l.holders {
		if l.in(h) && h.number > 0 && h.report.Holding.Number == h.number {
			h.held = true
		}
		if !h.held {
			return true
		}
	}
	return false
}

// judge looks whether a gateway goes by what it was told.
func (l *Leader) judge(h *holder, dark bool) {
	in := l.in(h)
	there := in && h.report.Holding.Number == h.number
	switch {
	case !h.ruled && h.number == 0 && h.report != nil:
		h.number, h.hold = 1, true
		if held := h.report.Holding; held.Term == l.term && held.Number < math.MaxUint64 {
			h.number = held.Number + 1 // it was in the spec before and refuses a lower number of the same term
		}
	case !h.ruled && there && h.number > 0 && !dark:
		h.ruled = true
		h.next()
		l.settled(h, (*stake).fall)
	case h.ruled && !in:
		h.ruled, h.hold = false, true
		h.number++
	case h.ruled && there && !h.acked:
		h.acked = true
		l.settled(h, func(s *stake) { s.held = s.offered })
	}
}

// leave notes that the spec does not list the gateway any more. It is told nothing, and what it holds lapses. Should the
// spec list it again, it is told to hold first.
func (h *holder) leave() {
	h.report = nil
	if h.number > 0 {
		h.number++
	}
	h.ruled, h.hold = false, true
}

// next begins another list, which the last one's acknowledgement allows.
func (h *holder) next() {
	h.number++
	h.hold, h.acked, h.told = false, false, false
}

func (l *Leader) settled(h *holder, f func(*stake)) {
	for _, c := range l.circles {
		for _, s := range c.stakes {
			if s.holder == h {
				f(s)
			}
		}
	}
}

// lapsed says that what we granted to a gateway out of touch is surely over.
func (h *holder) lapsed(now time.Time) bool { return now.Sub(h.granted) > spec.LeaseFor+delay }

// stake is one gateway's part in a circle.
type stake struct {
	holder *holder
	static spec.Allowance
	// held is what was last acknowledged, and offered what was last told.
	held, offered spec.Allowance
	target        spec.Allowance
	use           capacity.Use
}

// fall is what a gateway has at most that was told to hold: its static share, and of budgets what it has used besides, or
// the cap that it tells where that is less. Taken for more than that cap, it would be told of what others have used.
func (s *stake) fall() {
	s.held = s.static
	s.held[spec.DayTokens] = underCap(max(s.static[spec.DayTokens], s.use.DayTokens), s.use.CapTokens)
	s.held[spec.DayMicros] = underCap(max(s.static[spec.DayMicros], s.use.DayMicros), s.use.CapMicros)
	s.offered = s.held
}

// underCap bounds an amount by a cap, of which 0 is none.
func underCap(n, limit int64) int64 {
	if limit == 0 {
		return n
	}
	return min(n, limit)
}

// most is what a gateway may spend at most.
func (s *stake) most(now time.Time) spec.Allowance {
	u := s.held.Max(s.offered)
	if !s.holder.ruled {
		u = u.Max(s.static)
		u[spec.DayTokens], u[spec.DayMicros] = max(u[spec.DayTokens], s.use.CapTokens), max(u[spec.DayMicros], s.use.CapMicros)
		if s.holder.lapsed(now) {
			u[spec.Requests], u[spec.Tokens], u[spec.Concurrency] = s.static[spec.Requests], s.static[spec.Tokens], s.static[spec.Concurrency]
		}
	}
	u[spec.Concurrency] = max(u[spec.Concurrency], s.use.Running)
	u[spec.DayTokens] = max(u[spec.DayTokens], s.use.DayTokens)
	u[spec.DayMicros] = max(u[spec.DayMicros], s.use.DayMicros)
	return u
}
