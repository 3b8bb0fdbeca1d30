package health

import (
	"math/rand/v2"
	"time"
)

// Breaker is one worker's health. It has one writer and no lock.
type Breaker struct {
	cfg     Config
	rng     *rand.Rand
	state   State
	reason  Kind
	soft    int // Soft failures in a row
	refused int // Refused in a row
	probes  int // failed probes in a row
	good    int // successes while half-open
	opened  int // times opened without a full recovery in between: the exponent of the backoff
	until   time.Time
	since   time.Time // of the current share's start
	ramping bool
	owes    bool // a trial, since more than its absence spoke against it; whatever opened it since
	tight   bool // its GPU is nearly out of memory
	flow    flow
	record  record
	card    cards
	seen    time.Time // the latest moment that it was told of
}

// New returns a breaker for a worker that nobody has heard of: it takes nothing until a probe has succeeded.
func New(cfg Config, rng *rand.Rand) *Breaker {
	return &Breaker{cfg: cfg.withDefaults(), rng: rng, state: Open, reason: Probe}
}

// Configure changes thresholds and times. Its state stays.
func (b *Breaker) Configure(cfg Config) { b.cfg = cfg.withDefaults() }

// State now. An open breaker leaves that state only in ProbeOK.
func (b *Breaker) State() State { return b.state }

// Reason is what opened it last; it has a meaning while it is not closed.
func (b *Breaker) Reason() Kind { return b.reason }

// Until is when an open breaker may leave that state.
func (b *Breaker) Until() time.Time { return b.until }

// Trials is how many requests at once it takes: 0 means no bound of its own.
func (b *Breaker) Trials() int {
	if b.state == HalfOpen {
		return b.cfg.Trials
	}
	return 0
}

// Fail books a failure.
func (b *Breaker) Fail(k Kind, now time.Time) {
	b.see(now)
	switch k {
	case Soft:
		b.record.add(false, now)
		if b.soft++; b.soft >= b.cfg.Failures || b.state == HalfOpen {
			b.open(k, now)
		}
	case Refused:
		b.record.add(false, now)
		if b.refused++; b.refused >= 2 || b.state == HalfOpen {
			b.open(k, now)
		}
	case Probe:
		if b.probes++; b.probes >= 2 || b.state == HalfOpen {
			if !b.emits(now) {
				b.open(k, now)
			}
		}
	default:
		b.open(k, now)
	}
}

// emits says that the worker holds requests and has just emitted: too busy for a probe is not dead.
func (b *Breaker) emits(now time.Time) bool {
	return b.flow.inFlight > 0 && b.flow.spoke && b.Silence(now) < b.cfg.Stall/doubted
}

// Overloaded books an answer by which the worker refuses for its load. It opens nothing by itself and counts as a failed
// answer when the workers of a pool are compared.
func (b *Breaker) Overloaded(now time.Time) {
	b.see(now)
	b.record.add(false, now)
}

// OK books an answer that went well.
func (b *Breaker) OK(now time.Time) {
	b.see(now)
	b.soft, b.refused = 0, 0
	b.record.add(true, now)
	if b.state != HalfOpen {
		return
	}
	if b.good++; b.good >= b.cfg.Trials {
		b.close(now)
	}
}

// ProbeOK books a successful health probe: with the backoff passed, a worker that was out is warmed up.
func (b *Breaker) ProbeOK(now time.Time) {
	b.see(now)
	b.probes = 0
	if b.state != Open || now.Before(b.until) {
		return
	}
	if b.cfg.WarmUp {
		b.state = Warming
		return
	}
	b.back(now)
}

// Warmed books that the warm-up request was answered.
func (b *Breaker) Warmed(now time.Time) {
	if b.state == Warming {
		b.back(now)
	}
}

// back lets a worker take requests again: slowly, or on trial when more than its absence spoke against it.
func (b *Breaker) back(now time.Time) {
	if !b.owes {
		b.close(now)
		return
	}
	b.state, b.good = HalfOpen, 0
	b.soft, b.refused = 0, 0
}

// minShare is the least share of its usual load that a worker is given.
const minShare = 0.1

// Share of its usual load that the worker should get, over 0 and up to 1: less while it starts slowly, and half while
// its GPU is nearly out of memory.
func (b *Breaker) Share(now time.Time) float64 {
	b.see(now)
	s := 1.0
	if b.ramping {
		if s = max(0, now.Sub(b.since)).Seconds() / b.cfg.SlowStart.Seconds(); s >= 1 {
			b.ramping, b.opened, s = false, 0, 1
		}
	}
	if b.tight {
		s /= 2
	}
	return max(minShare, s)
}

func (b *Breaker) open(k Kind, now time.Time) {
	if b.state == Open {
		// More bad news about a worker that takes nothing changes nothing, unless it is worse.
		if !k.grave() || b.reason.grave() {
			return
		}
	}
	wait := min(b.cfg.Backoff<<min(b.opened, 16), b.cfg.MaxBackoff)
	if wait <= 0 { // shifted out of range
		wait = b.cfg.MaxBackoff
	}
	if k.grave() {
		wait = max(wait, b.cfg.Quarantine)
	}
	wait += time.Duration(b.rng.Float64() * 0.25 * float64(wait))
	b.state, b.reason, b.until = Open, k, now.Add(wait)
	b.opened++
	b.owes = b.owes || !k.absence()
	b.good, b.ramping = 0, false
	b.record = record{}
}

func (b *Breaker) close(now time.Time) {
	b.state, b.since, b.ramping, b.owes = Closed, now, true, false
	b.soft, b.refused, b.probes, b.good = 0, 0, 0, 0
}
