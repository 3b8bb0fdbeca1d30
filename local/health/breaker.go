package health

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// State of a Breaker.
type State uint8

// The states.
const (
	Closed   State = iota // well: takes requests
	HalfOpen              // on trial: takes at most Trials requests at once
	Open                  // sick: takes none until its backoff has passed
)

// String is the state's name in status and metrics.
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case HalfOpen:
		return "half_open"
	case Open:
		return "open"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Kind of a failure.
type Kind uint8

// The kinds, by how sure they are.
const (
	Soft    Kind = iota // an error answer or a broken stream: several in a row open
	Refused             // nobody listens or the connection died before an answer: two in a row open
	Stalled             // took requests and emitted nothing: opens at once
	Broken              // says itself that its GPU or memory is gone: opens at once and for longer
	Probe               // a health probe failed: two in a row open
)

// String names the kind in reasons and metrics.
func (k Kind) String() string {
	names := [...]string{"errors", "refused", "stalled", "broken", "probe"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Config of a Breaker. Zero fields take the defaults given.
type Config struct {
	// Failures in a row that open on Soft errors. Default 5.
	Failures int
	// Backoff is the first time spent open; it doubles up to MaxBackoff. Defaults 1s and 60s.
	Backoff, MaxBackoff time.Duration
	// Quarantine is the least time open after Broken. Default 30s.
	Quarantine time.Duration
	// Trials is how many requests at once a half-open worker takes, and how many must succeed. Default 1.
	Trials int
	// SlowStart is how long a recovered or new worker takes to reach its full share. Default 10s.
	SlowStart time.Duration
	// Stall is how long a worker with requests may emit nothing, beyond what is expected of it. Default 10s.
	Stall time.Duration
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if c.Failures <= 0 {
		c.Failures = 5
	}
	if c.Trials <= 0 {
		c.Trials = 1
	}
	def(&c.Backoff, time.Second)
	def(&c.MaxBackoff, time.Minute)
	def(&c.Quarantine, 30*time.Second)
	def(&c.SlowStart, 10*time.Second)
	def(&c.Stall, 10*time.Second)
	return c
}

// Breaker is one worker's health. It has one writer and no lock.
type Breaker struct {
	cfg      Config
	rng      *rand.Rand
	state    State
	reason   Kind
	soft     int // Soft failures in a row
	refused  int // Refused in a row
	probes   int // failed probes in a row
	good     int // successes while half-open
	opened   int // times opened without a full recovery in between: the exponent of the backoff
	until    time.Time
	since    time.Time // of the current share's start
	ramping  bool
	inFlight int
	progress time.Time
}

// New returns a breaker for a worker that nobody has heard of: it takes nothing until a probe has succeeded.
func New(cfg Config, rng *rand.Rand) *Breaker {
	return &Breaker{cfg: cfg.withDefaults(), rng: rng, state: Open, reason: Probe}
}

// State now. An open breaker leaves that state only in ProbeOK.
func (b *Breaker) State() State { return b.state }

// Reason is what opened it last; it has a meaning while it is not closed.
func (b *Breaker) Reason() Kind { return b.reason }

// Trials is how many requests at once it takes: 0 means no bound of its own.
func (b *Breaker) Trials() int {
	if b.state == HalfOpen {
		return b.cfg.Trials
	}
	return 0
}

// Fail books a failure.
func (b *Breaker) Fail(k Kind, now time.Time) {
	switch k {
	case Soft:
		if b.soft++; b.soft >= b.cfg.Failures || b.state == HalfOpen {
			b.open(k, now)
		}
	case Refused:
		if b.refused++; b.refused >= 2 || b.state == HalfOpen {
			b.open(k, now)
		}
	case Probe:
		if b.probes++; b.probes >= 2 || b.state == HalfOpen {
			b.open(k, now)
		}
	default:
		b.open(k, now)
	}
}

// OK books an answer that went well.
func (b *Breaker) OK(now time.Time) {
	b.soft, b.refused = 0, 0
	if b.state != HalfOpen {
		return
	}
	if b.good++; b.good >= b.cfg.Trials {
		b.close(now)
	}
}

// ProbeOK books a successful health probe: with the backoff passed, a sick worker goes on trial, and a new one whose
// first probe this is goes straight to work, slowly.
func (b *Breaker) ProbeOK(now time.Time) {
	b.probes = 0
	if b.state != Open || now.Before(b.until) {
		return
	}
	if b.opened == 0 || b.reason == Probe || b.reason == Refused {
		// Nothing but its absence speaks against it, and it is back.
		b.close(now)
		return
	}
	b.state, b.good = HalfOpen, 0
	b.soft, b.refused = 0, 0
}

// Share of its usual load that the worker should get, over 0 and up to 1: less while it starts slowly.
func (b *Breaker) Share(now time.Time) float64 {
	if !b.ramping {
		return 1
	}
	f := now.Sub(b.since).Seconds() / b.cfg.SlowStart.Seconds()
	if f >= 1 {
		b.ramping = false
		b.opened = 0
		return 1
	}
	return max(0.1, f)
}

// Began books a request sent, and Ended one that is over, however it ended.
func (b *Breaker) Began(now time.Time) {
	if b.inFlight == 0 {
		b.progress = now
	}
	b.inFlight++
}

// Ended books the end of a request that Began.
func (b *Breaker) Ended() {
	if b.inFlight > 0 {
		b.inFlight--
	}
}

// Progress books bytes of any answer.
func (b *Breaker) Progress(now time.Time) { b.progress = now }

// Stalled says whether the worker has held requests and emitted nothing for longer than Stall plus what is expected,
// the predicted time to its next byte. Of a worker whose last probe failed a quarter of Stall is believed.
func (b *Breaker) Stalled(expected time.Duration, now time.Time) bool {
	limit := b.cfg.Stall
	if b.probes > 0 {
		limit /= doubted
	}
	return b.Silence(now) > limit+max(expected, 0)
}

// Dead says whether the worker is out for what a dead process also does (it fails its probes, it stalls, it says that
// it is broken) and has held requests and emitted nothing for so long that none of them will be answered. A worker that
// is merely too busy to answer probes goes on emitting.
func (b *Breaker) Dead(now time.Time) bool {
	if b.state != Open || b.reason == Soft || b.reason == Refused {
		return false
	}
	return b.Silence(now) > min(b.cfg.Stall, deadSilence)
}

// Silence is how long the worker has held requests and emitted nothing; 0 when it holds none.
func (b *Breaker) Silence(now time.Time) time.Duration {
	if b.inFlight == 0 {
		return 0
	}
	return max(now.Sub(b.progress), 0)
}

const (
	doubted     = 4               // by how much a failed probe shortens the patience with silence
	deadSilence = 2 * time.Second // of a worker that is out already
)

func (b *Breaker) open(k Kind, now time.Time) {
	if b.state == Open {
		// More bad news about a worker that takes nothing changes nothing, unless it is worse.
		if k != Broken || b.reason == Broken {
			return
		}
	}
	wait := b.cfg.Backoff << min(b.opened, 16)
	wait = min(wait, b.cfg.MaxBackoff)
	if k == Broken {
		wait = max(wait, b.cfg.Quarantine)
	}
	wait += time.Duration(b.rng.Float64() * 0.25 * float64(wait))
	b.state, b.reason, b.until = Open, k, now.Add(wait)
	b.opened++
	b.good, b.ramping = 0, false
}

func (b *Breaker) close(now time.Time) {
	b.state, b.since, b.ramping = Closed, now, true
	b.soft, b.refused, b.probes, b.good = 0, 0, 0, 0
}
