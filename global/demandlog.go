package global

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
)

const (
	// replayWindow is how far back a dry run looks.
	replayWindow = 15 * time.Minute
	// demandSampleInterval is how often a node samples demand.
	demandSampleInterval = 5 * time.Second
	// maxDemandFlows bounds the flows kept for one minute: at about 100 bytes each, 13 MiB for the whole window.
	maxDemandFlows = 8192
)

// demandKey identifies one flow of demand. Region is where the demand arrived if no service of the spec steers it;
// otherwise it is empty.
type demandKey struct{ service, model, cell, region string }

// demandMinute is the demand of one minute.
type demandMinute struct {
	startedAt    time.Time // start of the minute
	samples      int
	rateSums     map[demandKey]float64 // tokens/s, summed over the samples
	droppedFlows int                   // flows that did not fit, at most in one sample
}

// demandLog keeps the demand that was reported to this node, minute by minute, newest last. It is in memory only: a
// node that starts has no history.
type demandLog struct {
	mu      sync.Mutex
	minutes []*demandMinute
}

// sampleLoop samples demand until ctx ends.
func (l *demandLog) sampleLoop(ctx context.Context, current *currentSnapshot) {
	for sleepFor(ctx, demandSampleInterval) {
		if v := current.Load(); v != nil {
			l.addSample(v.CollectDemand(), time.Now())
		}
	}
}

// addSample adds one sample.
func (l *demandLog) addSample(demand []steer.CellDemand, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.currentMinute(now)
	m.samples++
	left := 0
	for i := range demand {
		d := &demand[i]
		if d.Rate <= 0 {
			continue
		}
		key := demandKey{d.Service, d.Model, d.Cell, d.Region}
		if _, known := m.rateSums[key]; !known && len(m.rateSums) >= maxDemandFlows {
			left++
			continue
		}
		m.rateSums[key] += d.Rate
	}
	m.droppedFlows = max(m.droppedFlows, left)
}

// currentMinute returns the minute of now. It drops minutes older than replayWindow.
func (l *demandLog) currentMinute(now time.Time) *demandMinute {
	l.minutes = slices.DeleteFunc(l.minutes, func(m *demandMinute) bool { return now.Sub(m.startedAt) > replayWindow })
	if n := len(l.minutes); n > 0 && now.Sub(l.minutes[n-1].startedAt) < time.Minute {
		return l.minutes[n-1]
	}
	m := &demandMinute{startedAt: now, rateSums: map[demandKey]float64{}}
	l.minutes = append(l.minutes, m)
	return m
}

// observedDemand is the mean demand of one minute.
type observedDemand struct {
	demand       []steer.CellDemand // in a fixed order
	droppedFlows int
}

// newestMinutes returns the last minutes of demand, newest first, at most limit. Minutes without demand are left out.
func (l *demandLog) newestMinutes(limit int) (out []observedDemand) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.minutes) - 1; i >= 0 && len(out) < limit; i-- {
		if m := l.minutes[i]; len(m.rateSums) > 0 {
			out = append(out, m.meanDemand())
		}
	}
	return out
}

func (m *demandMinute) meanDemand() observedDemand {
	out := observedDemand{droppedFlows: m.droppedFlows}
	for k, sum := range m.rateSums {
		out.demand = append(out.demand, steer.CellDemand{
			Service: k.service, Model: k.model, Cell: k.cell, Region: k.region, Rate: sum / float64(m.samples),
		})
	}
	slices.SortFunc(out.demand, func(a, b steer.CellDemand) int {
		for _, c := range [...]int{
			strings.Compare(a.Service, b.Service), strings.Compare(a.Model, b.Model), strings.Compare(a.Cell, b.Cell),
		} {
			if c != 0 {
				return c
			}
		}
		return strings.Compare(a.Region, b.Region)
	})
	return out
}
