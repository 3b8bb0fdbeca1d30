package drill

import (
	"cmp"
	"slices"
	"time"
)

// runSeries are the lines of a run's plots, in bins of binTime.
type runSeries struct {
	due, good, ttft50, ttft99 []plotPoint
	byRegion                  map[string][]plotPoint // answers by the region that served, per second
	ages                      map[string][]plotPoint // age of summaries by region, the oldest of all nodes
	leaders                   []stateSpan
	downs                     []stateSpan
	epochs                    []plotPoint
	until                     float64
	predicted                 *runSeries
}

type plotPoint struct{ x, y float64 }

// stateSpan is a state from a time to another, in seconds.
type stateSpan struct {
	label    string
	from, to float64
}

// binTime is the width of a bin.
const binTime = 2 * time.Second

func newRunSeries(f *DrillFile, l *EventLog) *runSeries {
	s := &runSeries{byRegion: map[string][]plotPoint{}, ages: map[string][]plotPoint{}, until: f.Load.Duration.Seconds()}
	all := collectRequests(l)
	regions := f.RegionNames()
	p50, _ := findMetric("ttft p50")
	p99, _ := findMetric("ttft p99")
	for at := time.Duration(0); at < f.Load.Duration; at += binTime {
		list := selectRequests(all, Slice{}, at, at+binTime)
		x := (at + binTime/2).Seconds()
		good, served := 0, map[string]int{}
		for _, q := range list {
			if q.good {
				good++
			}
			if q.outcome == outcomeOK {
				region, _, _ := cutPath(q.worker)
				served[region]++
			}
		}
		s.due = append(s.due, plotPoint{x, float64(len(list)) / binTime.Seconds()})
		s.good = append(s.good, plotPoint{x, float64(good) / binTime.Seconds()})
		if v, ok := p50.measure(list); ok {
			s.ttft50 = append(s.ttft50, plotPoint{x, v})
		}
		if v, ok := p99.measure(list); ok {
			s.ttft99 = append(s.ttft99, plotPoint{x, v})
		}
		for _, region := range regions {
			s.byRegion[region] = append(s.byRegion[region], plotPoint{x, float64(served[region]) / binTime.Seconds()})
		}
	}
	s.addAges(l)
	s.addStates(l)
	return s
}

// addAges adds the age of each region's summaries: in each second, that of the node with the oldest.
func (s *runSeries) addAges(l *EventLog) {
	oldest := map[string]map[int]float64{}
	for i := range l.Events {
		e := &l.Events[i]
		if e.Kind != SummaryAge {
			continue
		}
		if oldest[e.Target] == nil {
			oldest[e.Target] = map[int]float64{}
		}
		at := int(e.At / time.Second)
		oldest[e.Target][at] = max(oldest[e.Target][at], e.Value)
	}
	for region, ages := range oldest {
		for at, v := range ages {
			s.ages[region] = append(s.ages[region], plotPoint{float64(at), v})
		}
		slices.SortFunc(s.ages[region], func(a, b plotPoint) int { return cmp.Compare(a.x, b.x) })
	}
}

// addStates adds who led, which nodes were down, and the newest epoch.
func (s *runSeries) addStates(l *EventLog) {
	newest := uint64(0)
	for i := range l.Events {
		e := &l.Events[i]
		at := e.At.Seconds()
		switch e.Kind {
		case LeaderChanged:
			if n := len(s.leaders); n > 0 {
				s.leaders[n-1].to = at
			}
			label := cmp.Or(e.Node, "no leader")
			s.leaders = append(s.leaders, stateSpan{label, at, s.until})
		case PlanApplied, DNSAnswered:
			if e.Number > newest {
				newest = e.Number
				s.epochs = append(s.epochs, plotPoint{at, float64(newest)})
			}
		}
	}
	for node, spans := range downTimes(l) {
		for _, d := range spans {
			to := s.until
			if d.to < 1<<62 {
				to = d.to.Seconds()
			}
			s.downs = append(s.downs, stateSpan{node + " down", d.from.Seconds(), to})
		}
	}
	slices.SortFunc(s.downs, func(a, b stateSpan) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.label, b.label)) })
}
