package gpu

import (
	"sync"
	"sync/atomic"
	"time"
)

// late is how far behind the wall clock the engine may run and still catch up step by step. A host that was paused for
// longer goes on from the present, as a real engine does.
const late = 250 * time.Millisecond

// driver runs an engine against the wall clock. It sleeps until the next event, and for good while there is none.
type driver struct {
	speed   float64
	base    time.Time
	metrics *metrics
	wake    chan struct{}
	quit    chan struct{}
	done    chan struct{}

	mu      sync.Mutex
	engine  *Engine
	stalled bool
	dead    bool // out of memory: nothing is taken

	publisher *publisher // of cache events; nil for none
	array     bool       // that they are arrays
}

// answer is one request's way back from the engine to its handler.
type answer struct {
	seq    *Sequence
	made   atomic.Int64
	place  atomic.Int64 // of the latest token among those of its step
	ended  atomic.Bool  // every token is made
	failed atomic.Bool  // the engine gave it up
	notify chan struct{}
	last   time.Time // engine time of the latest token; the driver's own
}

func newDriver(e *Engine, speed float64, m *metrics) *driver {
	return &driver{
		engine: e, speed: speed, base: time.Now(), metrics: m,
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
}

// now is the engine's time.
func (d *driver) now() time.Time {
	return d.base.Add(time.Duration(float64(time.Since(d.base)) * d.speed))
}

// wall turns a span of engine time into one of the wall clock.
func (d *driver) wall(span time.Duration) time.Duration {
	return time.Duration(float64(span) / d.speed)
}

func (d *driver) start() { go d.run() }

func (d *driver) close() {
	close(d.quit)
	<-d.done
}

func (d *driver) run() {
	defer close(d.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Stop()
		if wait, busy := d.tick(); busy {
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

// tick does all that is due and returns how long until something is again; false when nothing will be.
func (d *driver) tick() (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for !d.stalled {
		next, ok := d.engine.Next()
		if !ok {
			return 0, false
		}
		now := d.now()
		if next.After(now) {
			return max(d.wall(next.Sub(now)), 50*time.Microsecond), true
		}
		if d.wall(now.Sub(next)) > late {
			next = now
		}
		made := d.engine.Advance(next)
		d.tell()
		d.deliver(made, next)
	}
	return 0, false
}

func (d *driver) deliver(made []*Sequence, at time.Time) {
	for i, s := range made {
		a := s.Owner().(*answer)
		d.observe(s, a, at)
		a.last = at
		a.place.Store(int64(i))
		a.made.Store(int64(s.Generated()))
		a.ended.Store(s.Done())
		a.signal()
	}
}

func (d *driver) observe(s *Sequence, a *answer, at time.Time) {
	arrived, begun, first, _ := s.Times()
	if s.Generated() == 1 {
		d.metrics.ttft.observe(d.wall(at.Sub(arrived)))
		d.metrics.queue.observe(d.wall(begun.Sub(arrived)))
		d.metrics.prefill.observe(d.wall(at.Sub(begun)))
	} else {
		d.metrics.itl.observe(d.wall(at.Sub(a.last)))
	}
	if s.Done() {
		d.metrics.decode.observe(d.wall(at.Sub(first)))
		d.metrics.e2e.observe(d.wall(at.Sub(arrived)))
	}
}

func (a *answer) signal() {
	select {
	case a.notify <- struct{}{}:
	default:
	}
}

func (d *driver) nudge() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// submit hands a request to the engine.
func (d *driver) submit(r Request) (*answer, error) {
	a := &answer{notify: make(chan struct{}, 1)}
	r.Owner = a
	if err := d.hand(a, r); err != nil {
		return nil, err
	}
	d.nudge()
	return a, nil
}

func (d *driver) hand(a *answer, r Request) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return errOOM
	}
	a.seq, err = d.engine.Submit(d.now(), r)
	return err
}

// cancel frees what the answer still holds; true when it was not over.
func (d *driver) cancel(a *answer) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engine.Cancel(a.seq)
}

// pace stalls the engine, changes its speed or lets it run out of memory, which ends all that runs or waits.
func (d *driver) pace(stalled bool, slowdown float64, dead bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stalled, d.dead = stalled, dead
	d.engine.SetSlowdown(slowdown)
	if dead {
		d.failAll()
	}
	d.nudge()
}

// failAll gives up everything. The caller holds the lock.
func (d *driver) failAll() {
	for _, s := range d.engine.CancelAll() {
		a := s.Owner().(*answer)
		a.failed.Store(true)
		a.signal()
	}
}

// cached returns how much of the prompt the prefix cache had.
func (d *driver) cached(a *answer) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return a.seq.Cached()
}

func (d *driver) limits() Limits { return d.engine.Limits() }

func (d *driver) stats() (Gauges, Counters) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engine.Gauges(), d.engine.Counters()
}
