package gpu

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// chaosState holds the mode in force and the timer that ends it, and applies it to the engine.
type chaosState struct {
	driver  *engineDriver
	metrics *workerMetrics
	log     *slog.Logger

	current     atomic.Pointer[Chaos]
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
