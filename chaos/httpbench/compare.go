package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spillway-lb/spillway/chaos/machine"
)

// suites are what can be measured, in this order.
var suites = []struct {
	name string
	run  func(o *options, all []*system, worker string) error
}{
	{"request", perRequest},
	{"event", perEvent},
	{"memory", perStream},
	{"first", firstToken},
	{"soak", soak},
}

const (
	connections   = 64
	openStreams   = 500
	eventGap      = 20_000 // microseconds
	slowGap       = 50_000 // where two hops share a core
	warming       = 300 * time.Millisecond
	streamsOpened = 20 * time.Second
)

// figures are what came of one system, by round.
type figures struct {
	system     *system
	cpu        map[*hop][]float64 // microseconds per unit of work
	rate       []float64          // units a second
	p50, p99   []float64          // milliseconds
	first      []float64          // median milliseconds to the first event
	first99    []float64
	shares     []*shares
	bad, total int64
	why        error
}

// turn puts a load on a system for a while and takes its figures.
func (f *figures) turn(o *options, s *system, put func(l *load) error) error {
	l := newLoad(s)
	defer l.stop()
	if err := put(l); err != nil {
		return fmt.Errorf("%s: %w", s.label, err)
	}
	time.Sleep(warming)
	before := make([]time.Duration, len(s.hops))
	for i, h := range s.hops {
		var err error
		if before[i], err = h.used(); err != nil {
			return err
		}
	}
	sharing, err := o.sharing(s)
	if err != nil {
		return err
	}
	l.took.clear()
	began, done := time.Now(), l.done.Load()
	select {
	case <-time.After(o.window):
	case <-contextOfRun.Done():
		return contextOfRun.Err()
	}
	n, took := float64(l.done.Load()-done), time.Since(began)
	for i, h := range s.hops {
		after, err := h.used()
		if err != nil {
			return err
		}
		f.cpu[h] = append(f.cpu[h], float64((after-before[i]).Nanoseconds())/1000/max(n, 1))
	}
	if err := sharing.end(took); err != nil {
		return err
	}
	f.shares = append(f.shares, sharing)
	f.rate = append(f.rate, n/took.Seconds())
	f.p50, f.p99 = append(f.p50, millis(l.took.quantile(0.5))), append(f.p99, millis(l.took.quantile(0.99)))
	f.first, f.first99 = append(f.first, millis(l.first.quantile(0.5))), append(f.first99, millis(l.first.quantile(0.99)))
	f.bad, f.total = f.bad+l.bad.Load(), f.total+l.done.Load()
	if why := l.reasons(); why != nil {
		f.why = why
	}
	return nil
}

func millis(d time.Duration) float64 { return d.Seconds() * 1000 }

// rounds gives each system its turn, as often as there are rounds.
func (o *options) turns(all []*system, put func(s *system, l *load) error) (list []*figures, err error) {
	for _, s := range all {
		list = append(list, &figures{system: s, cpu: map[*hop][]float64{}})
	}
	for range o.rounds {
		for i, s := range all {
			if err := list[i].turn(o, s, func(l *load) error { return put(s, l) }); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// perRequest: 1 KB requests on connections that are kept.
func perRequest(o *options, all []*system, _ string) error {
	list, err := o.turns(all, func(_ *system, l *load) error {
		l.closed(connections)
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("\nCPU per request of 1 KB, %d connections kept, %d rounds of %s, machine load %s\n", connections, o.rounds, o.window, machine.Load())
	return table(list, func(c comparison) float64 { return c.perRequest })
}

// perEvent: events of many streams.
func perEvent(o *options, all []*system, _ string) error {
	list, err := o.turns(all, func(s *system, l *load) error {
		gap := eventGap
		if len(s.hops) > 1 {
			gap = slowGap
		}
		return l.open(openStreams, fmt.Sprintf("n=0 gap=%d", gap))
	})
	if err != nil {
		return err
	}
	fmt.Printf("\nCPU per event, %d streams of %d events/s, of %d where there are two hops, %d rounds of %s, machine load %s\n",
		openStreams, 1_000_000/eventGap, 1_000_000/slowGap, o.rounds, o.window, machine.Load())
	return table(list, func(c comparison) float64 { return c.perEvent })
}

// open opens streams and waits until all of them have had an event.
func (l *load) open(n int, what string) error {
	l.streams(n, what)
	for end := time.Now().Add(streamsOpened); l.opened.Load()+l.bad.Load() < int64(n); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) || contextOfRun.Err() != nil {
			return fmt.Errorf("%d of %d streams have begun, %d have failed: %v", l.opened.Load(), n, l.bad.Load(), l.reasons())
		}
	}
	return nil
}

// table prints each hop and what it is compared with.
func table(list []*figures, bound func(comparison) float64) error {
	theirs := map[string][]float64{}
	for _, f := range list {
		for _, h := range f.system.hops {
			theirs[h.label] = f.cpu[h]
		}
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "HOP\tCPU us\tWITH\tOURS/THEIRS\tLEAST\tGREATEST\tBOUND\t\tper s\tp50 ms\tp99 ms\tBAD")
	for _, f := range list {
		for _, h := range f.system.hops {
			rest := fmt.Sprintf("\t%.0f\t%.2f\t%.2f\t%d of %d", median(f.rate), median(f.p50), median(f.p99), f.bad, f.total)
			fmt.Fprintf(out, "%s\t%.1f\t\t\t\t\t\t%s\n", h.label, median(f.cpu[h]), rest)
			for _, c := range comparisons[h.label] {
				if len(theirs[c.with]) == 0 {
					continue
				}
				var ratios []float64
				for i, us := range f.cpu[h] {
					ratios = append(ratios, us/theirs[c.with][i])
				}
				verdict := "\t"
				if b := bound(c); b > 0 {
					verdict = fmt.Sprintf("<= %.2f\tmet", b)
					if median(ratios) > b {
						verdict = fmt.Sprintf("<= %.2f\tMISSED", b)
					}
				}
				fmt.Fprintf(out, "\t\t%s\t%.2f\t%.2f\t%.2f\t%s\n", c.with, median(ratios), slices.Min(ratios), slices.Max(ratios), verdict)
			}
		}
		if f.why != nil {
			fmt.Fprintf(out, "%s: %v\n", f.system.label, f.why)
		}
	}
	return out.Flush()
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	if n := len(all); n%2 == 0 {
		return (all[n/2-1] + all[n/2]) / 2
	}
	return all[len(all)/2]
}

// maxKB is what an open stream may cost a hop of ours, in KB.
const maxKB = 25

// settling is how long streams are left alone before their memory is looked at.
const settling = 15 * time.Second

// perStream: memory of streams that are open and nearly silent, in processes that have just begun.
func perStream(o *options, all []*system, _ string) error {
	fmt.Printf("\nmemory per open stream, %d streams with an event every %ds, machine load %s\n", o.held, soakGap/1_000_000, machine.Load())
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "HOP\tKB PER STREAM\tBOUND\t\tKB BEFORE\tBAD")
	for _, s := range all {
		s.stop()
		if err := s.start(o.cores); err != nil {
			return err
		}
		var before []int64
		for _, h := range s.hops {
			kb, err := h.resident()
			if err != nil {
				return err
			}
			before = append(before, kb)
		}
		l := newLoad(s)
		err := l.open(o.held, fmt.Sprintf("n=0 gap=%d", soakGap))
		if err == nil {
			time.Sleep(settling)
		}
		for i, h := range s.hops {
			kb, memErr := h.resident()
			if err != nil || memErr != nil {
				l.stop()
				return fmt.Errorf("%s: %v, %v", h.label, err, memErr)
			}
			each := float64(kb-before[i]) / float64(l.opened.Load())
			verdict := "\t"
			if comparisons[h.label] != nil {
				verdict = fmt.Sprintf("<= %d\tmet", maxKB)
				if each > maxKB {
					verdict = fmt.Sprintf("<= %d\tMISSED", maxKB)
				}
			}
			fmt.Fprintf(out, "%s\t%.1f\t%s\t%d\t%d\n", h.label, each, verdict, before[i], l.bad.Load())
		}
		if why := l.reasons(); why != nil {
			fmt.Fprintf(out, "%s: %v\n", s.label, why)
		}
		l.stop()
	}
	return out.Flush()
}

// What a first token may lose on its way through both tiers, in milliseconds.
const (
	maxFirst50, maxFirst99 = 0.5, 3
	aimedAt                = 1000 // streams a second, at which the bounds hold
	rateSettles            = 2 * time.Second
	streamOrder            = "n=10 gap=20000" // at 1,000 a second 200 are open at a time
)

// firstToken: what the time to the first event is longer by than without anything between.
func firstToken(o *options, all []*system, worker string) error {
	direct := &system{label: "direct"}
	list := append([]*system{direct}, slices.DeleteFunc(slices.Clone(all), func(s *system) bool { return len(s.hops) < 2 })...)
	direct.fixed = worker
	for _, s := range list[1:] { // both tiers share both cores, with worker and clients
		s.stop()
		if err := s.start(fmt.Sprintf("%s,%d", o.cores, o.generator)); err != nil {
			return err
		}
	}
	for text := range strings.SplitSeq(o.rates, ",") {
		perSecond, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("reading -rates: %w", err)
		}
		if err := o.firstAt(list, perSecond); err != nil {
			return err
		}
	}
	return nil
}

// firstAt is firstToken at one rate. The first of the list is nothing between.
func (o *options) firstAt(list []*system, perSecond float64) error {
	put := func(l *load) error {
		l.rated(perSecond, streamOrder)
		time.Sleep(ramp + rateSettles) // before, handshakes between the tiers are timed, at less than the rate
		l.first.clear()
		return nil
	}
	var all2 []*figures
	for _, s := range list {
		all2 = append(all2, &figures{system: s, cpu: map[*hop][]float64{}})
	}
	for range o.rounds {
		for i, s := range list {
			if err := all2[i].turn(o, s, put); err != nil {
				return err
			}
		}
	}
	fmt.Printf("\ntime to the first event, %.0f streams/s, %s, %d rounds of %s, machine load %s\n", perSecond, streamOrder, o.rounds, o.window, machine.Load())
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "THROUGH\tp50 ms\tp99 ms\tADDED p50\tBOUND\t\tADDED p99\tBOUND\t\tCPU us/EVENT\tBAD")
	for _, f := range all2 {
		a50, a99 := added(f.first, all2[0].first), added(f.first99, all2[0].first99)
		verdict50, verdict99 := "\t", "\t"
		if f.system.label == "path" && perSecond == aimedAt {
			verdict50, verdict99 = held(a50, maxFirst50), held(a99, maxFirst99)
		}
		var cpu float64
		for _, h := range f.system.hops {
			cpu += median(f.cpu[h])
		}
		fmt.Fprintf(out, "%s\t%.2f\t%.2f\t%.2f\t%s\t%.2f\t%s\t%.1f\t%d of %d\n", f.system.label, median(f.first), median(f.first99), a50, verdict50, a99, verdict99, cpu, f.bad, f.total)
		if f.why != nil {
			fmt.Fprintf(out, "%s: %v\n", f.system.label, f.why)
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return shareTable(all2)
}

func held(value, bound float64) string {
	if value > bound {
		return fmt.Sprintf("<= %.1f\tMISSED", bound)
	}
	return fmt.Sprintf("<= %.1f\tmet", bound)
}

// added is the median of what one is above the other in each round.
func added(with, without []float64) float64 {
	var all []float64
	for i := range with {
		all = append(all, with[i]-without[i])
	}
	return median(all)
}
