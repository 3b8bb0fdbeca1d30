package main

import (
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
)

// summaryDesk processes summaries like a tier: it stores the newest, and makes views of all of them ten times a
// second. It records the interval between two summaries of a child, which is the child's doing, and the transit time
// of each.
type summaryDesk struct {
	mu          sync.Mutex
	book        *capacity.SummaryTable
	madeAt      map[capacity.Path]time.Time
	childrenPID int // the children's process
	taken       int
	intervals   []time.Duration
	delays      []time.Duration
}

func newSummaryDesk() *summaryDesk {
	return &summaryDesk{book: capacity.NewSummaryTable(capacity.FreshnessThresholds{}), madeAt: make(map[capacity.Path]time.Time)}
}

func (d *summaryDesk) takeSummary(_ identity.ID, s *capacity.Summary) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.book.PutSummary(s, now) {
		return
	}
	d.taken++
	at, ok := madeAt(s)
	if !ok {
		return
	}
	if last, ok := d.madeAt[s.Path]; ok {
		d.intervals = append(d.intervals, at.Sub(last))
	}
	d.madeAt[s.Path] = at
	d.delays = append(d.delays, now.Sub(at))
}

// stampSummary stores in a summary when it was made, by the clock shared by all processes of this machine.
func stampSummary(s *capacity.Summary, now time.Time) { s.Models[0].CostMicros = now.UnixMicro() }

func madeAt(s *capacity.Summary) (time.Time, bool) {
	if len(s.Models) == 0 || s.Models[0].CostMicros <= usualCostMicros {
		return time.Time{}, false
	}
	return time.UnixMicro(s.Models[0].CostMicros), true
}

func (d *summaryDesk) makeView(now time.Time) *capacity.CapacityView {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.book.BuildView(now)
}

// resetFigures discards the recorded figures.
func (d *summaryDesk) resetFigures() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken, d.intervals, d.delays = 0, nil, nil
}

// readFigures are the figures since the reset.
func (d *summaryDesk) readFigures() (taken int, apart, onWay []time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken, d.intervals, d.delays
}
