package fault

import (
	"math/rand/v2"
	"sync"
	"time"
)

// direction is one direction of a link.
type direction struct {
	mu      sync.Mutex
	shaper  shaper
	rng     *rand.Rand
	changed chan struct{} // closed and replaced when the effect changes
}

func newDirection(base time.Duration, seed uint64) *direction {
	return &direction{shaper: shaper{base: base}, rng: rand.New(rand.NewPCG(seed, 0x11e)), changed: make(chan struct{})}
}

// loadEffect returns the effect in force and a channel that is closed when it changes.
func (d *direction) loadEffect() (effect, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shaper.effect, d.changed
}

func (d *direction) storeEffect(e effect) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shaper.effect == e {
		return
	}
	d.shaper.effect = e
	close(d.changed)
	d.changed = make(chan struct{})
}

// currentDelay is the delay of the direction without chance.
func (d *direction) currentDelay() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shaper.base + d.shaper.effect.delay
}
