package gpu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ChaosMode is a way in which a worker misbehaves.
type ChaosMode string

// Modes; the package's documentation describes their effects.
const (
	ModeOK           ChaosMode = "ok"
	ModeFail         ChaosMode = "fail"
	ModeStall        ChaosMode = "stall"
	ModeSlow         ChaosMode = "slow"
	ModeOOM          ChaosMode = "oom"
	ModeLeak         ChaosMode = "leak"
	ModeDieMidstream ChaosMode = "die_midstream"
	ModeRefuse       ChaosMode = "refuse"
	ModeHang         ChaosMode = "hang"
	ModeTrickle      ChaosMode = "trickle"
	ModeWrong        ChaosMode = "wrong"
	ModeLieMetrics   ChaosMode = "lie_metrics"
	ModeLieHealth    ChaosMode = "lie_health"
	ModePoison       ChaosMode = "poison"
	ModeColdStart    ChaosMode = "cold_start"
	ModeKeyRevoked   ChaosMode = "key_revoked"
	ModeLoseEvents   ChaosMode = "lose_events"
)

// chaosModes lists the modes in the order in which errors name them.
var chaosModes = []ChaosMode{
	ModeOK, ModeFail, ModeStall, ModeSlow, ModeOOM, ModeLeak, ModeDieMidstream, ModeRefuse, ModeHang, ModeTrickle, ModeWrong, ModeLieMetrics,
	ModeLieHealth, ModePoison, ModeColdStart, ModeKeyRevoked, ModeLoseEvents,
}

// Chaos is the configured misbehavior of a worker.
type Chaos struct {
	// Mode is the kind of misbehavior.
	Mode ChaosMode `json:"mode"`
	// Status is the answer of ModeFail, and of ModeLieHealth that claims to be healthy, 400 to 599. Default 500.
	Status int `json:"status,omitempty"`
	// Factor multiplies step times in ModeSlow. Default 4.
	Factor float64 `json:"factor,omitempty"`
	// AfterTokens is the number of tokens after which ModeDieMidstream cuts a stream. Default 1.
	AfterTokens int `json:"after_tokens,omitempty"`
	// Share is the fraction of requests that ModeFail and ModeDieMidstream affect, or of batches of events that
	// ModeLoseEvents loses, 0..1. Default 1.
	Share float64 `json:"share,omitempty"`
	// Requests is how many requests ModeLeak survives after each start. Default 100.
	Requests int `json:"requests,omitempty"`
	// Restart is how long each restart in ModeLeak, ModePoison and ModeColdStart takes. Default "10s".
	Restart string `json:"restart,omitempty"`
	// Interval is the time between two tokens of an answer in ModeTrickle. Default "1s".
	Interval string `json:"interval,omitempty"`
	// Healthy is what ModeLieHealth claims: true, and it fails all requests; false, and it serves them.
	Healthy bool `json:"healthy,omitempty"`
	// Text is what ends the process in ModePoison when a request's body contains it, at most 256 bytes.
	Text string `json:"text,omitempty"`
	// Lease is the fault that set the mode, for who clears it; see chaos/fault.
	Lease string `json:"lease,omitempty"`
	// For ends the mode after this time, such as "10s". Empty means no end.
	For string `json:"for,omitempty"`
}

func (c Chaos) withDefaults() Chaos {
	if c.Status == 0 && (c.Mode == ModeFail || c.Mode == ModeLieHealth) {
		c.Status = http.StatusInternalServerError
	}
	if c.Factor == 0 && c.Mode == ModeSlow {
		c.Factor = 4
	}
	if c.AfterTokens == 0 && c.Mode == ModeDieMidstream {
		c.AfterTokens = 1
	}
	if c.Share == 0 && (c.Mode == ModeFail || c.Mode == ModeDieMidstream || c.Mode == ModeLoseEvents) {
		c.Share = 1
	}
	if c.Mode == ModeLeak {
		c.Requests = orDefault(c.Requests, 100)
	}
	if c.Restart == "" && (c.Mode == ModeLeak || c.Mode == ModePoison || c.Mode == ModeColdStart) {
		c.Restart = "10s"
	}
	if c.Interval == "" && c.Mode == ModeTrickle {
		c.Interval = "1s"
	}
	return c
}

func (c Chaos) checkChaos() (time.Duration, error) {
	if !slices.Contains(chaosModes, c.Mode) {
		return 0, fmt.Errorf("unknown mode %q: use one of %v", c.Mode, chaosModes)
	}
	switch {
	case (c.Mode == ModeFail || c.Mode == ModeLieHealth) && (c.Status < 400 || c.Status > 599):
		return 0, fmt.Errorf("status %d: use 400 to 599", c.Status)
	case c.Mode == ModeSlow && (c.Factor < 0.01 || c.Factor > 1000):
		return 0, fmt.Errorf("factor %v: use 0.01 to 1000", c.Factor)
	case c.AfterTokens < 0:
		return 0, fmt.Errorf("after_tokens %d: use 1 or more", c.AfterTokens)
	case c.Share < 0 || c.Share > 1:
		return 0, fmt.Errorf("share %v: use 0 to 1", c.Share)
	case c.Mode == ModePoison && (c.Text == "" || len(c.Text) > maxPoison):
		return 0, fmt.Errorf("text of %d bytes: use 1 to %d", len(c.Text), maxPoison)
	}
	for field, text := range map[string]string{"restart": c.Restart, "interval": c.Interval} {
		if _, err := parseOptionalDuration(field, text); err != nil {
			return 0, err
		}
	}
	return parseOptionalDuration("for", c.For)
}

// maxPoison bounds the text of ModePoison.
const maxPoison = 256

// parseOptionalDuration parses a duration that may be empty.
func parseOptionalDuration(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s %q: use a positive duration such as \"10s\"", field, text)
	}
	return d, nil
}

// appliesTo reports whether a request with this draw from [0,1) is affected.
func (c *Chaos) appliesTo(mode ChaosMode, draw float64) bool { return c.Mode == mode && draw < c.Share }

// chaosState holds the mode in force and the timer that ends it, and applies it to the engine.
type chaosState struct {
	driver  *engineDriver
	metrics *workerMetrics
	log     *slog.Logger

	current     atomic.Pointer[Chaos]
	down        atomic.Bool // the process has ended and not restarted: connections are reset
	memoryGone  atomic.Bool // memory was exhausted by a leak, and the process has not restarted yet
	mu          sync.Mutex
	generation  uint64 // counts changes, so that a late timer ends only its own mode
	expiryTimer *time.Timer
	leak        leakState
}

func (b *chaosState) storeCurrent(c Chaos) { b.current.Store(&c) }
func (b *chaosState) loadCurrent() *Chaos  { return b.current.Load() }

func (b *chaosState) stopTimers() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.generation++
	if b.expiryTimer != nil {
		b.expiryTimer.Stop()
	}
	if t := b.leak.restartTimer; t != nil {
		t.Stop()
	}
}

// setMode sets or ends a misbehavior. The error names the field to correct.
func (b *chaosState) setMode(c Chaos) error {
	c = c.withDefaults()
	span, err := c.checkChaos()
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.expiryTimer != nil {
		b.expiryTimer.Stop()
		b.expiryTimer = nil
	}
	b.applyChaos(c)
	b.generation++
	if turn := b.generation; span > 0 {
		b.expiryTimer = time.AfterFunc(span, func() { b.expireChaos(turn) })
	}
	b.log.Warn("chaos mode set", "mode", string(c.Mode), "for", c.For)
	return nil
}

func (b *chaosState) applyChaos(c Chaos) {
	b.resetLeak()
	b.storeCurrent(c)
	factor := 1.0
	if c.Mode == ModeSlow {
		factor = c.Factor
	}
	b.driver.setPace(c.Mode == ModeStall, factor, c.Mode == ModeOOM)
	b.driver.setEventLoss(c.Share, c.Mode == ModeLoseEvents)
	if c.Mode == ModeColdStart {
		b.endProcess(c, b.generation+1) // setMode counts this change after it
	}
}

// expireChaos ends a mode unless another one was set since.
func (b *chaosState) expireChaos(turn uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.generation == turn {
		b.applyChaos(Chaos{Mode: ModeOK})
	}
}

func (b *chaosState) serveChaos(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, b.loadCurrent())
}

func (b *chaosState) changeChaos(w http.ResponseWriter, r *http.Request) {
	var c Chaos
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096))
	dec.DisallowUnknownFields()
	err := dec.Decode(&c)
	if err == nil {
		err = b.setMode(c)
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	writeJSON(w, http.StatusOK, b.loadCurrent())
}

// endProcess ends the process until it has restarted. The lock must be held.
func (b *chaosState) endProcess(c Chaos, turn uint64) {
	restart, _ := time.ParseDuration(c.Restart) // checked when it was set
	b.down.Store(true)
	b.driver.setPace(false, 1, true)
	b.leak.restartTimer = time.AfterFunc(restart, func() { b.restartProcess(turn) })
	b.log.Warn("the worker's process has ended", "mode", string(c.Mode), "restart", c.Restart)
}

// takePoison ends the process if a request's body contains the text of ModePoison.
func (b *chaosState) takePoison(body []byte) {
	if c := b.loadCurrent(); c.Mode != ModePoison || !bytes.Contains(body, []byte(c.Text)) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.loadCurrent(); c.Mode == ModePoison && !b.down.Load() {
		b.endProcess(*c, b.generation)
	}
}

// leakState is the progress of ModeLeak. It is guarded by the chaosState's lock.
type leakState struct {
	leakedRequests int // requests since the start of the process, each of which leaked memory
	restartTimer   *time.Timer
}

// leakMemory leaks the memory of one request. The request that exhausts the memory ends the process: running requests
// fail, and no request is answered until the restart.
func (b *chaosState) leakMemory() {
	c := b.loadCurrent()
	if c.Mode != ModeLeak || b.memoryGone.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leak.leakedRequests++; b.leak.leakedRequests < c.Requests {
		return
	}
	restart, _ := time.ParseDuration(c.Restart) // checked when it was set
	turn := b.generation
	b.memoryGone.Store(true)
	b.driver.setPace(false, 1, true)
	b.leak.restartTimer = time.AfterFunc(restart, func() { b.restartProcess(turn) })
	b.log.Warn("the worker has leaked all its memory", "requests", b.leak.leakedRequests, "restart", c.Restart)
}

// restartProcess simulates the process that a supervisor starts after the failure: an empty cache, counters at zero,
// and the same leak.
func (b *chaosState) restartProcess(turn uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.generation == turn {
		b.driver.restartEngine()
		b.metrics.resetCounts()
		b.resetLeak()
	}
}

// resetLeak resets the leaked memory. The lock must be held.
func (b *chaosState) resetLeak() {
	if t := b.leak.restartTimer; t != nil {
		t.Stop()
	}
	b.leak = leakState{}
	b.memoryGone.Store(false)
	b.down.Store(false)
}
