package scale

import (
	"math"
	"time"
)

// Config of one model.
type Config struct {
	// Target is the part of a replica's capacity that is to be used, 0..1. Default 0.7.
	Target float64
	// Min and Max bound the replicas; Max 0 means no bound.
	Min, Max int
	// Lead is how long a new replica takes until it serves. Default 2m.
	Lead time.Duration
	// Window is how long fewer must have been enough before fewer are asked for. Default 5m.
	Window time.Duration
}

// Input is what the zone knows of a model.
type Input struct {
	// Rate and Trend are a Meter's.
	Rate, Trend Demand
	// Replica is what one replica does in tokens/s; zero where nothing was learned yet.
	Replica Demand
	// Backlog is prefill work that waits, in tokens.
	Backlog float64
	// Ready replicas.
	Ready int
}

// Output is what to ask for.
type Output struct {
	// Needed replicas before rounding and bounds: of several instances of a zone these add up.
	Needed float64
	// Desired replicas.
	Desired int
	// Use of the present replicas by the present demand: 1 is all that they can do. With none ready it is the number of
	// replicas that the demand would fill.
	Use float64
}

// A replica nobody has measured is taken for a small GPU, in tokens/s.
const (
	unlearnedPrefill = 3000
	unlearnedDecode  = 300
)

// maxReplicas caps what is asked for.
const maxReplicas = 1_000_000

// windowParts is how finely the scale-down window is kept.
const windowParts = 12

// State remembers what was needed over the scale-down window. The zero State is ready.
type State struct {
	parts [windowParts]float64
	at    int64
	part  time.Duration
	since time.Time
	last  int // desired, before bounds
}

// Decide reckons what to ask for, and remembers it.
func Decide(c Config, in *Input, s *State, now time.Time) Output {
	c = c.withDefaults()
	replica := in.Replica
	if !(replica.Prefill >= 1) {
		replica.Prefill = unlearnedPrefill
	}
	if !(replica.Decode >= 1) {
		replica.Decode = unlearnedDecode
	}
	lead := max(c.Lead.Seconds(), 1)
	ahead := Demand{forecast(in.Rate.Prefill, in.Trend.Prefill, lead), forecast(in.Rate.Decode, in.Trend.Decode, lead)}
	use := clean(ahead.in(replica) + clean(in.Backlog)/(replica.Prefill*max(lead, 30)))
	needed := s.remember(min(use/c.Target, maxReplicas), c.Window, now)
	desired := s.whole(needed)
	if now.Sub(s.since) < c.Window {
		desired = max(desired, in.Ready)
	}
	if desired = max(desired, c.Min); c.Max > 0 {
		desired = min(desired, c.Max)
	}
	present := Demand{clean(in.Rate.Prefill), clean(in.Rate.Decode)}
	return Output{Needed: needed, Desired: desired, Use: clean(present.in(replica) / float64(max(in.Ready, 1)))}
}

func (c Config) withDefaults() Config {
	if !(c.Target > 0 && c.Target <= 1) {
		c.Target = 0.7
	}
	if c.Lead <= 0 {
		c.Lead = 2 * time.Minute
	}
	if c.Window <= 0 {
		c.Window = 5 * time.Minute
	}
	c.Min = min(max(c.Min, 0), maxReplicas)
	return c
}

// forecast carries growth on, at most to twice the present.
func forecast(rate, trend, lead float64) float64 {
	rate = clean(rate)
	return rate + min(clean(trend)*lead, rate)
}

// in is the part of a replica's time that a demand takes.
func (d Demand) in(replica Demand) float64 {
	return d.Prefill/replica.Prefill + d.Decode/replica.Decode
}

// remember takes in what is needed now and returns the most that was needed in the window. A clock that steps back
// counts into the present part.
func (s *State) remember(needed float64, window time.Duration, now time.Time) float64 {
	part := max(window/windowParts, time.Millisecond)
	at := now.UnixNano() / int64(part)
	if s.since.IsZero() {
		s.since = now
	}
	if part != s.part { // another window: what was needed until now is kept for all of it
		m := s.most()
		for i := range s.parts {
			s.parts[i] = m
		}
		s.part, s.at = part, at
	}
	if at-s.at >= windowParts {
		s.parts, s.at = [windowParts]float64{}, at
	}
	for ; s.at < at; s.at++ {
		s.parts[(s.at+1)%windowParts] = 0
	}
	p := &s.parts[s.at%windowParts]
	*p = max(*p, needed)
	return s.most()
}

// whole rounds up. What has just become less by a hair stays, so that nothing turns about a whole number.
func (s *State) whole(needed float64) int {
	n := int(math.Ceil(needed - 1e-9))
	if n < s.last && int(math.Ceil(needed*slack)) >= s.last {
		n = s.last
	}
	s.last = n
	return n
}

// slack is how much more could be needed without more replicas before fewer are asked for.
const slack = 1.1

func (s *State) most() (m float64) {
	for _, v := range s.parts {
		m = max(m, v)
	}
	return m
}
