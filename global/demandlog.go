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
	// replayed is how far back a dry run looks.
	replayed = 15 * time.Minute
	// watchEvery is how often a node writes down what is demanded.
	watchEvery = 5 * time.Second
	// maxFlows bounds what is kept of one minute: at about 100 bytes each, 13 MiB for all of them.
	maxFlows = 8192
)

// demandKey is who asks for what. Region is where it arrived, of demand that no service of the spec steers, and else empty.
type demandKey struct{ service, model, cell, region string }

// minute is what was demanded during one.
type minute struct {
	at      time.Time // when it began
	samples int
	sum     map[demandKey]float64 // tokens/s, added up over the samples
	left    int                   // flows that there was no room for, at their most
}

// demandLog remembers what this node has heard of demand, minute by minute, newest last. It is soft: a node that starts
// knows nothing of the past.
type demandLog struct {
	mu      sync.Mutex
	minutes []*minute
}

// watch writes down what is demanded until ctx ends.
func (s *Server) watch(ctx context.Context) {
	for sleep(ctx, watchEvery) {
		if v := s.view.Load(); v != nil {
			s.demand.add(v.demands(), time.Now())
		}
	}
}

// demands is what the View knows of demand, in the planner's terms.
func (v *View) demands() (out []steer.Demand) {
	for r := range v.regions {
		if !v.regions[r].heard || v.regions[r].dead {
			continue
		}
		for _, d := range v.regions[r].group.Summary.Demand {
			x := v.demandOf(r, d.Service, d.Model, d.Cell, d.TokensPerSec)
			if v.service(x.Service) >= 0 {
				x.Region = ""
			}
			out = append(out, x)
		}
	}
	return out
}

// add writes down one sample.
func (l *demandLog) add(demand []steer.Demand, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.current(now)
	m.samples++
	left := 0
	for i := range demand {
		d := &demand[i]
		if d.Rate <= 0 {
			continue
		}
		key := demandKey{d.Service, d.Model, d.Cell, d.Region}
		if _, known := m.sum[key]; !known && len(m.sum) >= maxFlows {
			left++
			continue
		}
		m.sum[key] += d.Rate
	}
	m.left = max(m.left, left)
}

// current is the minute of now; it forgets those that are too old.
func (l *demandLog) current(now time.Time) *minute {
	l.minutes = slices.DeleteFunc(l.minutes, func(m *minute) bool { return now.Sub(m.at) > replayed })
	if n := len(l.minutes); n > 0 && now.Sub(l.minutes[n-1].at) < time.Minute {
		return l.minutes[n-1]
	}
	m := &minute{at: now, sum: map[demandKey]float64{}}
	l.minutes = append(l.minutes, m)
	return m
}

// observed is one minute's demand on the mean.
type observed struct {
	demand []steer.Demand // in a fixed order
	left   int
}

// newest are the last minutes of demand, newest first, at most limit; a minute that nobody asked in is left out.
func (l *demandLog) newest(limit int) (out []observed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.minutes) - 1; i >= 0 && len(out) < limit; i-- {
		if m := l.minutes[i]; len(m.sum) > 0 {
			out = append(out, m.mean())
		}
	}
	return out
}

func (m *minute) mean() observed {
	out := observed{left: m.left}
	for k, sum := range m.sum {
		out.demand = append(out.demand, steer.Demand{
			Service: k.service, Model: k.model, Cell: k.cell, Region: k.region, Rate: sum / float64(m.samples),
		})
	}
	slices.SortFunc(out.demand, func(a, b steer.Demand) int {
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
