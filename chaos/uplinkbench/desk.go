package main

import (
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
)

// desk is what a tier does with statements: it keeps the newest, and looks at all of them ten times a second. It notes of
// each how far apart it and the one before were made, which is its child's doing, and how long it was on the way.
type desk struct {
	mu    sync.Mutex
	book  *capacity.Book
	made  map[capacity.Path]time.Time
	crowd int // the children's process
	taken int
	apart []time.Duration
	onWay []time.Duration
}

func newDesk() *desk {
	return &desk{book: capacity.NewBook(capacity.Thresholds{}), made: make(map[capacity.Path]time.Time)}
}

func (d *desk) take(_ identity.ID, s *capacity.Summary) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.book.Put(s, now) {
		return
	}
	d.taken++
	at, ok := madeAt(s)
	if !ok {
		return
	}
	if last, ok := d.made[s.Path]; ok {
		d.apart = append(d.apart, at.Sub(last))
	}
	d.made[s.Path] = at
	d.onWay = append(d.onWay, now.Sub(at))
}

// stamp says in a statement when it was made, by the clock that all processes of this machine share.
func stamp(s *capacity.Summary, now time.Time) { s.Models[0].CostMicros = now.UnixMicro() }

func madeAt(s *capacity.Summary) (time.Time, bool) {
	if len(s.Models) == 0 || s.Models[0].CostMicros <= usualCost {
		return time.Time{}, false
	}
	return time.UnixMicro(s.Models[0].CostMicros), true
}

func (d *desk) view(now time.Time) *capacity.View {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.book.View(now)
}

// begin forgets what was noted so far.
func (d *desk) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken, d.apart, d.onWay = 0, nil, nil
}

// noted is what was since begin.
func (d *desk) noted() (taken int, apart, onWay []time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken, d.apart, d.onWay
}
