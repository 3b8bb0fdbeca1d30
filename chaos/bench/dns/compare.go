package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spillway-lb/spillway/chaos/bench/dnsload"
	"github.com/spillway-lb/spillway/chaos/bench/machine"
)

// cpuBounds bounds our CPU time per answer relative to a peer's: with both saturated, and at a fixed rate. 0: no
// bound.
var cpuBounds = map[string]struct{ saturated, rated float64 }{
	"gdnsd":   {1.00, 1.05},
	"knot":    {0.65, 0},
	"coredns": {0.07, 0},
}

// warmUp is the time before each turn whose answers are not counted, because a server's caches are cold after the
// other turns.
const warmUp = 150 * time.Millisecond

// subnetCount is the number of subnets in one run, drawn evenly.
const subnetCount = 1 << 20

// serverFigures are the results of one server at one rate.
type serverFigures struct {
	dnsload.LoadResult
	perAnswer []float64 // CPU time, microseconds, by round
}

// compareServers measures and prints.
func (o *dnsBenchOptions) compareServers(all []*benchServer, w *geoDatabase) error {
	rng := rand.New(rand.NewPCG(1, 9))
	asked := make([]uint32, subnetCount)
	for i := range asked {
		asked[i] = w.askedNetworks[rng.IntN(len(w.askedNetworks))]
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "%d networks, %d rounds of %s, machine load %s\n", o.networks, o.rounds, o.window, machine.LoadAverage())
	fmt.Fprintln(out, "RATE\tSERVER\tCPU us/ANSWER\tOURS/THEIRS\tLEAST\tGREATEST\tBOUND\t\tANSWERS/s\tp50\tp99\tWRONG\tUNANSWERED")
	for _, rate := range o.rates {
		list, err := o.runRounds(all, w, rate, asked)
		if err != nil {
			return err
		}
		for i, s := range list {
			printRow(out, rate, s.label, list[0], list[i], i > 0)
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := printMemory(os.Stdout, all); err != nil {
		return err
	}
	return printCacheEntries(os.Stdout, all)
}

type labelledFigures struct {
	serverFigures
	label string
}

// runRounds queries each server in turn, once per round.
func (o *dnsBenchOptions) runRounds(all []*benchServer, w *geoDatabase, rate float64, asked []uint32) (list []*labelledFigures, err error) {
	var takers []*benchServer
	for i, s := range all {
		if i == 0 || rate == 0 || cpuBounds[s.label].rated != 0 {
			takers = append(takers, s)
			list = append(list, &labelledFigures{label: s.label})
		}
	}
	for range o.rounds {
		for i, s := range takers {
			l := dnsload.QueryLoad{Server: s.addr, Name: queryName, Subnets: asked, WantOctet: w.answerByNetwork, Rate: rate}
			if _, err := l.RunFor(contextOfRun, warmUp); err != nil {
				return nil, err
			}
			before, err := machine.ProcessorTime(s.cmd.Process.Pid)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.label, err)
			}
			r, err := l.RunFor(contextOfRun, o.window)
			if err == nil {
				err = contextOfRun.Err()
			}
			if err != nil {
				return nil, err
			}
			after, err := machine.ProcessorTime(s.cmd.Process.Pid)
			if err != nil || r.Answered == 0 {
				return nil, fmt.Errorf("%s: %d of %d queries answered, %w", s.label, r.Answered, r.Sent, err)
			}
			list[i].MergeCounts(&r)
			list[i].perAnswer = append(list[i].perAnswer, float64((after-before).Nanoseconds())/1000/float64(r.Answered))
		}
	}
	return list, nil
}

// printRow prints one server's figures, for a peer with our ratio to it in each round.
func printRow(out io.Writer, rate float64, label string, ours, it *labelledFigures, peer bool) {
	what := "saturated"
	if rate > 0 {
		what = fmt.Sprintf("%.0f/s", rate)
	}
	ratio := "\t\t\t\t"
	if peer {
		var all []float64
		for i := range it.perAnswer {
			all = append(all, ours.perAnswer[i]/it.perAnswer[i])
		}
		bound := cpuBounds[label].saturated
		if rate > 0 {
			bound = cpuBounds[label].rated
		}
		verdict := fmt.Sprintf("<= %.2f\tmet", bound)
		switch {
		case bound == 0:
			verdict = "none\t"
		case medianOf(all) > bound:
			verdict = fmt.Sprintf("<= %.2f\tMISSED", bound)
		}
		ratio = fmt.Sprintf("%.3f\t%.3f\t%.3f\t%s", medianOf(all), slices.Min(all), slices.Max(all), verdict)
	}
	fmt.Fprintf(out, "%s\t%s\t%.2f\t%s\t%.0f\t%s\t%s\t%d\t%d of %d\n", what, label, medianOf(it.perAnswer), ratio,
		float64(it.Answered)/it.SendTime.Seconds(), it.P50, it.P99, it.Wrong+it.Malformed, it.Lost, it.Sent)
}

func medianOf(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	if n := len(all); n%2 == 0 {
		return (all[n/2-1] + all[n/2]) / 2
	}
	return all[len(all)/2]
}

// memoryBound bounds our resident memory relative to Knot's.
const memoryBound = 2

// printMemory prints the memory of each server after the queries, with the part that no file backs.
func printMemory(out io.Writer, all []*benchServer) error {
	resident := map[string]float64{}
	for _, s := range all {
		rss, err := machine.ResidentBytes(s.cmd.Process.Pid)
		if err != nil {
			return fmt.Errorf("%s: %w", s.label, err)
		}
		anonymous, err := machine.AnonymousBytes(s.cmd.Process.Pid)
		if err != nil {
			return fmt.Errorf("%s: %w", s.label, err)
		}
		resident[s.label] = float64(rss)
		fmt.Fprintf(out, "memory, %s: %.1f MB resident, %.1f MB of it anonymous\n", s.label, float64(rss)/1e6, float64(anonymous)/1e6)
	}
	if theirs := resident["knot"]; theirs > 0 {
		verdict := "met"
		if resident["spillway"] > memoryBound*theirs {
			verdict = "MISSED"
		}
		fmt.Fprintf(out, "resident at most %d times Knot's: %.2f: %s\n", memoryBound, resident["spillway"]/theirs, verdict)
	}
	return nil
}

// printCacheEntries prints the cache entries of a resolver for all clients' answers, which must not exceed gdnsd's.
func printCacheEntries(out io.Writer, all []*benchServer) error {
	counts := map[string]int{}
	for _, s := range all {
		total := 0
		for octet := byte(1); octet < 224; octet++ {
			if reservedOctets[int(octet)] {
				continue
			}
			n, err := dnsload.CountCacheEntries(s.addr, queryName, netip.AddrFrom4([4]byte{octet}), netip.AddrFrom4([4]byte{octet, 255, 255, 255}))
			if err != nil {
				fmt.Fprintf(out, "resolver cache entries, %s: %v\n", s.label, err)
				total = -1
				break
			}
			total += n
		}
		if counts[s.label] = total; total >= 0 {
			fmt.Fprintf(out, "resolver cache entries, %s: %d\n", s.label, total)
		}
	}
	if theirs := counts["gdnsd"]; theirs > 0 {
		verdict := "met"
		if counts["spillway"] > theirs || counts["spillway"] <= 0 {
			verdict = "MISSED"
		}
		fmt.Fprintf(out, "never more than gdnsd: %s\n", verdict)
	}
	return nil
}
