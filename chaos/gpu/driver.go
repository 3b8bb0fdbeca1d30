package gpu

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// maxLag is how far the engine may lag behind the wall clock and still catch up step by step. After a longer pause of
// the host it continues from the present, as a real engine does.
const maxLag = 250 * time.Millisecond

// engineDriver runs an engine against the wall clock. It sleeps until the next event, without a timer while there is
// none.
type engineDriver struct {
	speed     float64
	startedAt time.Time
	metrics   *workerMetrics
	wake      chan struct{}
	quit      chan struct{}
	done      chan struct{}

	mu          sync.Mutex
	engine      *Engine
	stalled     bool
	outOfMemory bool // memory is exhausted: no request is accepted

	publisher   *eventPublisher // of cache events; nil for none
	arrayEvents bool            // events are encoded as arrays
	eventLoss   float64         // the share of batches of events that are lost
	lossRand    *rand.Rand
}

// pendingAnswer is the connection between a request in the engine and its handler.
type pendingAnswer struct {
	sequence     *Sequence
	generated    atomic.Int64
	stepPosition atomic.Int64 // of the latest token, within its step
	ended        atomic.Bool  // every token is generated
	failed       atomic.Bool  // the engine has failed it
	notify       chan struct{}
	lastTokenAt  time.Time // engine time of the latest token; used by the driver only
}

func newDriver(e *Engine, speed float64, m *workerMetrics) *engineDriver {
	return &engineDriver{
		engine: e, speed: speed, startedAt: time.Now(), metrics: m,
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}), lossRand: rand.New(rand.NewPCG(1, 0x1055)),
	}
}

// engineTime is the current time of the engine.
func (d *engineDriver) engineTime() time.Time {
	return d.startedAt.Add(time.Duration(float64(time.Since(d.startedAt)) * d.speed))
}

// wallDuration converts a duration of engine time to one of the wall clock.
func (d *engineDriver) wallDuration(span time.Duration) time.Duration {
	return time.Duration(float64(span) / d.speed)
}

func (d *engineDriver) startLoop() { go d.runLoop() }

func (d *engineDriver) stopLoop() {
	close(d.quit)
	<-d.done
}

func (d *engineDriver) runLoop() {
	defer close(d.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Stop()
		if wait, busy := d.advanceDue(); busy {
			timer.Reset(wait)
		}
		select {
		case <-d.quit:
			return
		case <-d.wake:
		case <-timer.C:
		}
	}
}

// advanceDue processes all due events and returns the time until the next; false when there is none.
func (d *engineDriver) advanceDue() (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for !d.stalled {
		next, ok := d.engine.NextEvent()
		if !ok {
			return 0, false
		}
		now := d.engineTime()
		if next.After(now) {
			return max(d.wallDuration(next.Sub(now)), 50*time.Microsecond), true
		}
		if d.wallDuration(now.Sub(next)) > maxLag {
			next = now
		}
		made := d.engine.AdvanceTo(next)
		d.publishChanges()
		d.deliverTokens(made, next)
	}
	return 0, false
}

func (d *engineDriver) deliverTokens(made []*Sequence, at time.Time) {
	for i, s := range made {
		a := s.Owner().(*pendingAnswer)
		d.observeToken(s, a, at)
		a.lastTokenAt = at
		a.stepPosition.Store(int64(i))
		a.generated.Store(int64(s.GeneratedTokens()))
		a.ended.Store(s.IsDone())
		a.notifyHandler()
	}
}

func (d *engineDriver) observeToken(s *Sequence, a *pendingAnswer, at time.Time) {
	arrived, begun, first, _ := s.EventTimes()
	if s.GeneratedTokens() == 1 {
		d.metrics.ttft.observeDuration(d.wallDuration(at.Sub(arrived)))
		d.metrics.queue.observeDuration(d.wallDuration(begun.Sub(arrived)))
		d.metrics.prefill.observeDuration(d.wallDuration(at.Sub(begun)))
	} else {
		d.metrics.itl.observeDuration(d.wallDuration(at.Sub(a.lastTokenAt)))
	}
	if s.IsDone() {
		d.metrics.decode.observeDuration(d.wallDuration(at.Sub(first)))
		d.metrics.e2e.observeDuration(d.wallDuration(at.Sub(arrived)))
	}
}

func (a *pendingAnswer) notifyHandler() {
	select {
	case a.notify <- struct{}{}:
	default:
	}
}

func (d *engineDriver) wakeLoop() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// submitRequest submits a request to the engine.
func (d *engineDriver) submitRequest(r EngineRequest) (*pendingAnswer, error) {
	a := &pendingAnswer{notify: make(chan struct{}, 1)}
	r.Owner = a
	if err := d.submitLocked(a, r); err != nil {
		return nil, err
	}
	d.wakeLoop()
	return a, nil
}

func (d *engineDriver) submitLocked(a *pendingAnswer, r EngineRequest) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.outOfMemory {
		return errOOM
	}
	a.sequence, err = d.engine.Submit(d.engineTime(), r)
	return err
}

// cancelAnswer releases what the answer still holds; true when it was not complete.
func (d *engineDriver) cancelAnswer(a *pendingAnswer) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engine.Cancel(a.sequence)
}

// setPace stalls the engine, sets its speed, or exhausts its memory, which fails all running and waiting requests.
func (d *engineDriver) setPace(stalled bool, slowdown float64, dead bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stalled, d.outOfMemory = stalled, dead
	d.engine.SetSlowdown(slowdown)
	if dead {
		d.failAll()
	}
	d.wakeLoop()
}

// setEventLoss loses a share of the batches of cache events.
func (d *engineDriver) setEventLoss(share float64, lossy bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.eventLoss = 0; lossy {
		d.eventLoss = share
	}
}

// failAll fails all requests. The lock must be held.
func (d *engineDriver) failAll() {
	for _, s := range d.engine.CancelAll() {
		a := s.Owner().(*pendingAnswer)
		a.failed.Store(true)
		a.notifyHandler()
	}
}

// cachedTokens is the cached part of the prompt.
func (d *engineDriver) cachedTokens(a *pendingAnswer) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return a.sequence.CachedTokens()
}

func (d *engineDriver) engineLimits() EngineLimits { return d.engine.Limits() }

func (d *engineDriver) engineStats() (Gauges, Counters) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engine.Gauges(), d.engine.Counters()
}

// restartEngine resets the engine and accepts requests again.
func (d *engineDriver) restartEngine() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failAll()
	d.engine.Restart()
	d.outOfMemory = false
	d.wakeLoop()
}
