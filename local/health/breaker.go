package health

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/backoff"
)

// Breaker is the health state of one worker. It has one writer and no lock.
type Breaker struct {
	cfg            Config
	rng            *rand.Rand
	state          BreakerState
	reason         FailureKind
	softFailures   int // plain error answers in a row
	softOf         tenants
	refusedInRow   int // consecutive ConnectionRefused
	failedProbes   int // consecutive failed probes
	trialSuccesses int // successes while half-open
	openCount      int // times opened since the last full recovery: the exponent of the backoff
	openUntil      time.Time
	rampStart      time.Time // start of the share's ramp
	ramping        bool
	trialRequired  bool // recovery needs a trial: since the last one it was opened for more than absence
	memoryTight    bool // its GPU is nearly out of memory
	progress       tokenProgress
	answers        answerRecord
	gpuState       gpuHistory
	// suspicion covers plain error answers to one tenant.
	suspicion suspicion
	lastSeen  time.Time // latest time passed to the breaker
}

// New returns a breaker for a new worker. It is open until a probe succeeds.
func New(cfg Config, rng *rand.Rand) *Breaker {
	return &Breaker{cfg: cfg.withDefaults(), rng: rng, state: Open, reason: ProbeFailed}
}

// SetConfig changes thresholds and times. The state stays.
func (b *Breaker) SetConfig(cfg Config) { b.cfg = cfg.withDefaults() }

// State is the current state. An open breaker leaves it only in RecordProbeSuccess.
func (b *Breaker) State() BreakerState { return b.state }

// Reason is what opened it last; meaningful only while it is not closed.
func (b *Breaker) Reason() FailureKind { return b.reason }

// OpenUntil is the earliest time at which an open breaker may leave that state.
func (b *Breaker) OpenUntil() time.Time { return b.openUntil }

// MaxTrials is how many requests the worker takes at once; 0 means no bound.
func (b *Breaker) MaxTrials() int {
	if b.state == HalfOpen {
		return b.cfg.Trials
	}
	return 0
}

// RecordFailure records a failure. Plain error answers to clients are recorded by FailAnswer; SoftError here is one
// that a verification confirmed.
func (b *Breaker) RecordFailure(k FailureKind, now time.Time) {
	b.adjustClock(now)
	switch k {
	case ConnectionRefused:
		b.answers.addAnswer(false, now)
		if b.refusedInRow++; b.refusedInRow >= 2 || b.state == HalfOpen {
			b.openBreaker(k, now)
		}
	case ProbeFailed:
		if b.failedProbes++; b.failedProbes >= 2 || b.state == HalfOpen {
			if !b.hasRecentOutput(now) {
				b.openBreaker(k, now)
			}
		}
	default:
		b.openBreaker(k, now)
	}
}

// hasRecentOutput reports whether the worker holds requests and has emitted recently: it is then too busy to answer
// probes, not dead.
func (b *Breaker) hasRecentOutput(now time.Time) bool {
	return b.progress.inFlight > 0 && b.progress.hasEmitted && b.Silence(now) < b.cfg.Stall/failedProbeDivisor
}

// RecordSuccess records a successful answer.
func (b *Breaker) RecordSuccess(now time.Time) {
	b.adjustClock(now)
	b.softFailures, b.softOf, b.refusedInRow = 0, tenants{}, 0
	b.answers.addAnswer(true, now)
	if b.state != HalfOpen {
		return
	}
	if b.trialSuccesses++; b.trialSuccesses >= b.cfg.Trials {
		b.closeBreaker(now)
	}
}

// RecordProbeSuccess records a successful health probe. After the backoff, it starts the warm-up of an open worker.
func (b *Breaker) RecordProbeSuccess(now time.Time) {
	b.adjustClock(now)
	b.failedProbes = 0
	if b.state != Open || now.Before(b.openUntil) {
		return
	}
	if b.cfg.WarmUp {
		b.state = Warming
		return
	}
	b.readmitWorker(now)
}

// RecordWarmUp records that the warm-up request was answered.
func (b *Breaker) RecordWarmUp(now time.Time) {
	if b.state == Warming {
		b.readmitWorker(now)
	}
}

// readmitWorker lets a worker take requests again: with a ramp or, if it was out for more than absence, on trial.
func (b *Breaker) readmitWorker(now time.Time) {
	if !b.trialRequired {
		b.closeBreaker(now)
		return
	}
	b.state, b.trialSuccesses = HalfOpen, 0
	b.softFailures, b.softOf, b.refusedInRow = 0, tenants{}, 0
}

// minShare is the lowest share of its usual load that a worker gets.
const minShare = 0.1

// Share of its usual load that the worker should get, above 0 and up to 1: reduced during slow start, and halved
// while its GPU is nearly out of memory.
func (b *Breaker) Share(now time.Time) float64 {
	b.adjustClock(now)
	s := 1.0
	if b.ramping {
		if s = max(0, now.Sub(b.rampStart)).Seconds() / b.cfg.SlowStart.Seconds(); s >= 1 {
			b.ramping, b.openCount, s = false, 0, 1
		}
	}
	if b.memoryTight {
		s /= 2
	}
	return max(minShare, s)
}

func (b *Breaker) openBreaker(k FailureKind, now time.Time) {
	if b.state == Open {
		// A further failure of an open worker changes nothing, unless it shows broken hardware and the reason so far
		// does not.
		if !k.isHardwareFailure() || b.reason.isHardwareFailure() {
			return
		}
	}
	wait := backoff.DelayAfter(b.cfg.Backoff, b.cfg.MaxBackoff, b.openCount+1)
	if k.isHardwareFailure() {
		wait = max(wait, b.cfg.Quarantine)
	}
	wait += time.Duration(b.rng.Float64() * 0.25 * float64(wait))
	b.state, b.reason, b.openUntil = Open, k, now.Add(wait)
	b.openCount++
	b.trialRequired = b.trialRequired || !k.isAbsence()
	b.trialSuccesses, b.ramping = 0, false
	b.answers, b.suspicion = answerRecord{}, suspicion{}
}

func (b *Breaker) closeBreaker(now time.Time) {
	b.state, b.rampStart, b.ramping, b.trialRequired = Closed, now, true, false
	b.softFailures, b.softOf, b.refusedInRow, b.failedProbes, b.trialSuccesses = 0, tenants{}, 0, 0, 0
}

// maxClockBackstep is how far the time may step back without a clock change, because callers read the clock before
// they wait for their turn.
const maxClockBackstep = 10 * time.Second

// adjustClock detects a clock that was set back and moves all stored times back with it, so that no backoff is longer
// by the difference.
func (b *Breaker) adjustClock(now time.Time) {
	back := b.lastSeen.Sub(now)
	switch {
	case back <= 0:
		b.lastSeen = now
		return
	case back < maxClockBackstep:
		return
	}
	for _, t := range [...]*time.Time{
		&b.openUntil, &b.rampStart, &b.progress.lastOutput, &b.answers.updatedAt, &b.suspicion.verified,
		&b.softOf.at[0], &b.softOf.at[1], &b.answers.plainOf.at[0], &b.answers.plainOf.at[1],
	} {
		if !t.IsZero() {
			*t = t.Add(-back)
		}
	}
	b.lastSeen = now
}

// BreakerState is the state of a Breaker.
type BreakerState uint8

// States of a breaker.
const (
	Closed   BreakerState = iota // healthy: takes requests
	HalfOpen                     // on trial: takes at most Trials requests at once
	Open                         // unhealthy: takes none until its backoff has passed
	Warming                      // reachable again, waiting for the answer to its warm-up request: takes none
)

// String is the state's name in status and metrics.
func (s BreakerState) String() string {
	switch s {
	case Closed:
		return "closed"
	case HalfOpen:
		return "half_open"
	case Open:
		return "open"
	case Warming:
		return "warming"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// AcceptsRequests reports whether requests may be sent in this state.
func (s BreakerState) AcceptsRequests() bool { return s == Closed || s == HalfOpen }

// GPUHealth is the reading of one GPU from an exporter.
type GPUHealth struct {
	// XID is the driver's last error code; 0 for none. It stays until the driver is reset.
	XID int64
	// RemapFailed reports that the spare rows for broken memory are used up.
	RemapFailed bool
	// Used and Free memory, in bytes.
	Used, Free int64
}

// gpuHistory is the previous reading, so that only changes count: a code from before a repair stays on the exporter's
// page.
type gpuHistory struct {
	hasReport    bool
	lastXID      int64
	failedRemaps int
}

// isFatalXID reports the codes after which a GPU no longer computes, or not correctly (NVIDIA, "XID errors"):
// double-bit ECC, a halted controller, failed row remapping, NVLink, fallen off the bus, contained and uncontained
// ECC, and a dead GSP. Codes that a program can cause, such as 13, 31 and 43, are not included.
func isFatalXID(code int64) bool {
	switch code {
	case 48, 62, 64, 74, 79, 94, 95, 110, 119, 120, 140:
		return true
	}
	return false
}

// minFreeMemoryShare is the fraction of free memory below which a GPU is nearly out of memory. Engines allocate
// nearly all of it and keep a few percent free for temporary use.
const minFreeMemoryShare = 0.005

// RecordGPUHealth records a reading of all the worker's GPUs. A new fatal code or a new failed remap quarantines the
// worker; nearly exhausted memory halves its share while it lasts.
func (b *Breaker) RecordGPUHealth(list []GPUHealth, now time.Time) {
	was := b.gpuState
	next := gpuHistory{hasReport: true}
	b.memoryTight = false
	for _, c := range list {
		if isFatalXID(c.XID) {
			next.lastXID = max(next.lastXID, c.XID)
		}
		if c.RemapFailed {
			next.failedRemaps++
		}
		if total := c.Used + c.Free; c.Used > 0 && c.Free >= 0 && float64(c.Free) < minFreeMemoryShare*float64(total) {
			b.memoryTight = true
		}
	}
	b.gpuState = next
	if was.hasReport && (next.lastXID != 0 && next.lastXID != was.lastXID || next.failedRemaps > was.failedRemaps) {
		b.openBreaker(GPUFault, now)
	}
}

// IsMemoryTight reports whether the worker's share is halved for lack of GPU memory.
func (b *Breaker) IsMemoryTight() bool { return b.memoryTight }
