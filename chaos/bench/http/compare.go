//go:build !windows

package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spillway-lb/spillway/chaos/bench/machine"
)

// suites are the available measurements, in order.
var suites = []struct {
	name string
	run  func(o *httpBenchOptions, all []*benchSystem, worker string) error
}{
	{"request", measureRequests},
	{"paced", measurePacedRequests},
	{"workers", measureWorkers},
	{"event", measureEvents},
	{"memory", measureStreamMemory},
	{"first", measureFirstToken},
	{"soak", runSoak},
}

const (
	connectionCount    = 64
	openStreamCount    = 500
	eventGapMicros     = 20_000 // microseconds
	slowEventGapMicros = 50_000 // if two hops share a core
	warmUp             = 300 * time.Millisecond
	streamOpenTimeout  = 20 * time.Second
)

// systemFigures are the results of one system, by round.
type systemFigures struct {
	system        *benchSystem
	cpu           map[*hopProcess][]float64 // microseconds per unit of work
	rate          []float64                 // units a second
	p50, p99      []float64                 // milliseconds
	firstEventP50 []float64                 // median milliseconds to the first event
	firstEventP99 []float64
	shares        []*cpuShares
	bad, total    int64
	problem       error
}

// runTurn loads a system for one window and records its figures.
func (f *systemFigures) runTurn(o *httpBenchOptions, s *benchSystem, put func(l *benchLoad) error) error {
	l := newBenchLoad(s)
	defer l.stopAll()
	if err := put(l); err != nil {
		return fmt.Errorf("%s: %w", s.label, err)
	}
	time.Sleep(warmUp)
	before := make([]time.Duration, len(s.hops))
	for i, h := range s.hops {
		var err error
		if before[i], err = h.cpuTime(); err != nil {
			return err
		}
	}
	sharing, err := o.startShares(s)
	if err != nil {
		return err
	}
	l.durations.clearCounts()
	began, done := time.Now(), l.done.Load()
	select {
	case <-time.After(o.window):
	case <-contextOfRun.Done():
		return contextOfRun.Err()
	}
	n, took := float64(l.done.Load()-done), time.Since(began)
	for i, h := range s.hops {
		after, err := h.cpuTime()
		if err != nil {
			return err
		}
		f.cpu[h] = append(f.cpu[h], float64((after-before[i]).Nanoseconds())/1000/max(n, 1))
	}
	if err := sharing.finishShares(took); err != nil {
		return err
	}
	f.shares = append(f.shares, sharing)
	f.rate = append(f.rate, n/took.Seconds())
	f.p50, f.p99 = append(f.p50, toMillis(l.durations.quantileOf(0.5))), append(f.p99, toMillis(l.durations.quantileOf(0.99)))
	f.firstEventP50, f.firstEventP99 = append(f.firstEventP50, toMillis(l.firstEvent.quantileOf(0.5))), append(f.firstEventP99, toMillis(l.firstEvent.quantileOf(0.99)))
	f.bad, f.total = f.bad+l.failed.Load(), f.total+l.done.Load()
	if why := l.failureReasons(); why != nil {
		f.problem = why
	}
	return nil
}

func toMillis(d time.Duration) float64 { return d.Seconds() * 1000 }

// runRounds gives each system its turn, once per round.
func (o *httpBenchOptions) runRounds(all []*benchSystem, put func(s *benchSystem, l *benchLoad) error) (list []*systemFigures, err error) {
	for _, s := range all {
		list = append(list, &systemFigures{system: s, cpu: map[*hopProcess][]float64{}})
	}
	for range o.rounds {
		for i, s := range all {
			if err := list[i].runTurn(o, s, func(l *benchLoad) error { return put(s, l) }); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// measureRequests measures 1 KB requests on persistent connections.
func measureRequests(o *httpBenchOptions, all []*benchSystem, _ string) error {
	list, err := o.runRounds(all, func(_ *benchSystem, l *benchLoad) error {
		l.startClosedLoop(connectionCount)
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("\nCPU per request of 1 KB, %d connections kept, %d rounds of %s, machine load %s\n", connectionCount, o.rounds, o.window, machine.LoadAverage())
	return printTable(list, "request in a closed loop", func(c hopComparison) float64 { return c.maxPerRequest })
}

// measurePacedRequests measures the same requests at one rate for all. In a closed loop the clients and the worker of a slower
// proxy sleep more often, and waking them counts as the proxy's time.
func measurePacedRequests(o *httpBenchOptions, all []*benchSystem, _ string) error {
	list, err := o.runRounds(all, func(s *benchSystem, l *benchLoad) error {
		l.startPaced(connectionCount, o.pace/float64(len(s.hops)))
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("\nCPU per request of 1 KB at %.0f requests/s, half of it where there are two hops, %d connections kept, %d rounds of %s, machine load %s\n",
		o.pace, connectionCount, o.rounds, o.window, machine.LoadAverage())
	return printTable(list, "request at one rate", func(c hopComparison) float64 { return c.maxPerRequest })
}

// measureEvents measures events of many streams.
func measureEvents(o *httpBenchOptions, all []*benchSystem, _ string) error {
	list, err := o.runRounds(all, func(s *benchSystem, l *benchLoad) error {
		gap := eventGapMicros
		if len(s.hops) > 1 {
			gap = slowEventGapMicros
		}
		return l.openStreams(openStreamCount, fmt.Sprintf("n=0 gap=%d", gap))
	})
	if err != nil {
		return err
	}
	fmt.Printf("\nCPU per event, %d streams of %d events/s, of %d where there are two hops, %d rounds of %s, machine load %s\n",
		openStreamCount, 1_000_000/eventGapMicros, 1_000_000/slowEventGapMicros, o.rounds, o.window, machine.LoadAverage())
	return printTable(list, "event", func(c hopComparison) float64 { return c.maxPerEvent })
}

// printTable prints each hop and each pair of hops with their comparisons, and then what they show in words.
func printTable(list []*systemFigures, unit string, bound func(hopComparison) float64) error {
	theirs := map[string][]float64{}
	for _, f := range list {
		theirs[f.system.label] = f.sumOfHops() // of one hop, the same as the hop's
		for _, h := range f.system.hops {
			theirs[h.label] = f.cpu[h]
		}
	}
	var lines []string
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "HOP\tCPU us\tWITH\tOURS/THEIRS\tLEAST\tGREATEST\tBOUND\t\tper s\tp50 ms\tp99 ms\tBAD")
	compare := func(ours string, us []float64, c hopComparison) {
		if len(theirs[c.peer]) == 0 {
			return
		}
		ratios, verdict := ratiosOf(us, theirs[c.peer]), "\t"
		if b := bound(c); b > 0 {
			verdict = fmt.Sprintf("<= %.2f\tmet", b)
			if medianOf(ratios) > b {
				verdict = fmt.Sprintf("<= %.2f\tMISSED", b)
			}
			lines = append(lines, verdictLine(cmp.Or(hopTitles[ours], ours), cmp.Or(hopTitles[c.peer], c.peer), unit, ratios, b))
		}
		fmt.Fprintf(out, "\t\t%s\t%.2f\t%.2f\t%.2f\t%s\n", c.peer, medianOf(ratios), slices.Min(ratios), slices.Max(ratios), verdict)
	}
	for _, f := range list {
		for _, h := range f.system.hops {
			rest := fmt.Sprintf("\t%.0f\t%.2f\t%.2f\t%d of %d", medianOf(f.rate), medianOf(f.p50), medianOf(f.p99), f.bad, f.total)
			fmt.Fprintf(out, "%s\t%.1f\t\t\t\t\t\t%s\n", h.label, medianOf(f.cpu[h]), rest)
			for _, c := range hopComparisons[h.label] {
				compare(h.label, f.cpu[h], c)
			}
		}
		if c, ok := pathComparisons[f.system.label]; ok {
			fmt.Fprintf(out, "%s, both hops\t%.1f\n", f.system.label, medianOf(f.sumOfHops()))
			compare(f.system.label, f.sumOfHops(), c)
		}
		if f.problem != nil {
			fmt.Fprintf(out, "%s: %v\n", f.system.label, f.problem)
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	printVerdicts(lines)
	return nil
}

func medianOf(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	if n := len(all); n%2 == 0 {
		return (all[n/2-1] + all[n/2]) / 2
	}
	return all[len(all)/2]
}

// maxStreamKB bounds the memory of an open stream in one of our hops, in KB.
const maxStreamKB = 25

// memorySettleTime is how long streams settle before their memory is measured.
const memorySettleTime = 15 * time.Second

// measureStreamMemory measures the memory of open and nearly silent streams, in new processes.
func measureStreamMemory(o *httpBenchOptions, all []*benchSystem, _ string) error {
	fmt.Printf("\nmemory per open stream, %d streams with an event every %ds, machine load %s\n", o.heldStreams, soakEventGapMicros/1_000_000, machine.LoadAverage())
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "HOP\tKB PER STREAM\tBOUND\t\tKB BEFORE\tBAD")
	for _, s := range all {
		s.killProcesses()
		if err := s.startProcesses(o.cores); err != nil {
			return err
		}
		var before []int64
		for _, h := range s.hops {
			kb, err := h.residentKB()
			if err != nil {
				return err
			}
			before = append(before, kb)
		}
		l := newBenchLoad(s)
		err := l.openStreams(o.heldStreams, fmt.Sprintf("n=0 gap=%d", soakEventGapMicros))
		if err == nil {
			time.Sleep(memorySettleTime)
		}
		for i, h := range s.hops {
			kb, memErr := h.residentKB()
			if err != nil || memErr != nil {
				l.stopAll()
				return fmt.Errorf("%s: %v, %v", h.label, err, memErr)
			}
			each := float64(kb-before[i]) / float64(l.opened.Load())
			verdict := "\t"
			if hopComparisons[h.label] != nil {
				verdict = fmt.Sprintf("<= %d\tmet", maxStreamKB)
				if each > maxStreamKB {
					verdict = fmt.Sprintf("<= %d\tMISSED", maxStreamKB)
				}
			}
			fmt.Fprintf(out, "%s\t%.1f\t%s\t%d\t%d\n", h.label, each, verdict, before[i], l.failed.Load())
		}
		if why := l.failureReasons(); why != nil {
			fmt.Fprintf(out, "%s: %v\n", s.label, why)
		}
		l.stopAll()
	}
	return out.Flush()
}

// Bounds of the delay of a first token through both tiers, in milliseconds.
const (
	maxAddedP50Millis, maxAddedP99Millis = 0.5, 3
	targetStreamRate                     = 1000 // streams per second at which the bounds apply
	rateSettleTime                       = 2 * time.Second
	firstTokenOrder                      = "n=10 gap=20000" // at 1,000 a second 200 are open at a time
)

// measureFirstToken measures the increase of the time to the first event relative to a direct connection.
func measureFirstToken(o *httpBenchOptions, all []*benchSystem, worker string) error {
	direct := &benchSystem{label: "direct"}
	list := append([]*benchSystem{direct}, slices.DeleteFunc(slices.Clone(all), func(s *benchSystem) bool { return len(s.hops) < 2 })...)
	direct.fixedAddr = worker
	for _, s := range list[1:] { // both tiers share both cores, with worker and clients
		s.killProcesses()
		if err := s.startProcesses(fmt.Sprintf("%s,%d", o.cores, o.generator)); err != nil {
			return err
		}
	}
	for text := range strings.SplitSeq(o.rates, ",") {
		perSecond, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("reading -rates: %w", err)
		}
		if err := o.measureFirstTokenAt(list, perSecond); err != nil {
			return err
		}
	}
	return nil
}

// measureFirstTokenAt is measureFirstToken at one rate. The first of the list is the direct connection.
func (o *httpBenchOptions) measureFirstTokenAt(list []*benchSystem, perSecond float64) error {
	put := func(l *benchLoad) error {
		l.startStreamsAtRate(perSecond, firstTokenOrder)
		time.Sleep(rateRampTime + rateSettleTime) // before that, TLS handshakes between the tiers are measured, at less than the rate
		l.firstEvent.clearCounts()
		return nil
	}
	var all2 []*systemFigures
	for _, s := range list {
		all2 = append(all2, &systemFigures{system: s, cpu: map[*hopProcess][]float64{}})
	}
	for range o.rounds {
		for i, s := range list {
			if err := all2[i].runTurn(o, s, put); err != nil {
				return err
			}
		}
	}
	fmt.Printf("\ntime to the first event, %.0f streams/s, %s, %d rounds of %s, machine load %s\n", perSecond, firstTokenOrder, o.rounds, o.window, machine.LoadAverage())
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "THROUGH\tp50 ms\tp99 ms\tADDED p50\tBOUND\t\tADDED p99\tBOUND\t\tCPU us/EVENT\tBAD")
	for _, f := range all2 {
		a50, a99 := medianDifference(f.firstEventP50, all2[0].firstEventP50), medianDifference(f.firstEventP99, all2[0].firstEventP99)
		verdict50, verdict99 := "\t", "\t"
		if f.system.label == "path" && perSecond == targetStreamRate {
			verdict50, verdict99 = formatBound(a50, maxAddedP50Millis), formatBound(a99, maxAddedP99Millis)
		}
		var cpu float64
		for _, h := range f.system.hops {
			cpu += medianOf(f.cpu[h])
		}
		fmt.Fprintf(out, "%s\t%.2f\t%.2f\t%.2f\t%s\t%.2f\t%s\t%.1f\t%d of %d\n", f.system.label, medianOf(f.firstEventP50), medianOf(f.firstEventP99), a50, verdict50, a99, verdict99, cpu, f.bad, f.total)
		if f.problem != nil {
			fmt.Fprintf(out, "%s: %v\n", f.system.label, f.problem)
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return printShares(all2)
}

func formatBound(value, bound float64) string {
	if value > bound {
		return fmt.Sprintf("<= %.1f\tMISSED", bound)
	}
	return fmt.Sprintf("<= %.1f\tmet", bound)
}

// medianDifference is the median over rounds of the difference between two figures.
func medianDifference(with, without []float64) float64 {
	var all []float64
	for i := range with {
		all = append(all, with[i]-without[i])
	}
	return medianOf(all)
}
