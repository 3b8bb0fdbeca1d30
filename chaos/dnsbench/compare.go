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

	"github.com/spillway-lb/spillway/chaos/dnsload"
	"github.com/spillway-lb/spillway/chaos/machine"
)

// bounds are how much of a peer's CPU time per answer ours may take: where both are saturated, and at a fixed rate. 0:
// there is no bound.
var bounds = map[string]struct{ saturated, rated float64 }{
	"gdnsd":   {1.00, 1.05},
	"knot":    {0.65, 0},
	"coredns": {0.07, 0},
}

// warming is asked before each turn and not counted: whoever has waited for his turn comes with cold caches.
const warming = 150 * time.Millisecond

// subnets of one run, drawn evenly.
const subnets = 1 << 20

// figures are what came of one server at one rate.
type figures struct {
	dnsload.Result
	perAnswer []float64 // CPU time, microseconds, by round
}

// compare measures and prints.
func (o *options) compare(all []*server, w *world) error {
	rng := rand.New(rand.NewPCG(1, 9))
	asked := make([]uint32, subnets)
	for i := range asked {
		asked[i] = w.asked[rng.IntN(len(w.asked))]
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "%d networks, %d rounds of %s, machine load %s\n", o.networks, o.rounds, o.window, machine.Load())
	fmt.Fprintln(out, "RATE\tSERVER\tCPU us/ANSWER\tOURS/THEIRS\tLEAST\tGREATEST\tBOUND\t\tANSWERS/s\tp50\tp99\tWRONG\tUNANSWERED")
	for _, rate := range o.rates {
		list, err := o.turns(all, w, rate, asked)
		if err != nil {
			return err
		}
		for i, s := range list {
			row(out, rate, s.label, list[0], list[i], i > 0)
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return entries(os.Stdout, all)
}

type named struct {
	figures
	label string
}

// turns asks each server in turn, as often as there are rounds.
func (o *options) turns(all []*server, w *world, rate float64, asked []uint32) (list []*named, err error) {
	var takers []*server
	for i, s := range all {
		if i == 0 || rate == 0 || bounds[s.label].rated != 0 {
			takers = append(takers, s)
			list = append(list, &named{label: s.label})
		}
	}
	for range o.rounds {
		for i, s := range takers {
			l := dnsload.Load{Server: s.addr, Name: name, Subnets: asked, Want: w.region, Rate: rate}
			if _, err := l.Run(contextOfRun, warming); err != nil {
				return nil, err
			}
			before, err := machine.ProcessorTime(s.cmd.Process.Pid)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.label, err)
			}
			r, err := l.Run(contextOfRun, o.window)
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
			list[i].Merge(&r)
			list[i].perAnswer = append(list[i].perAnswer, float64((after-before).Nanoseconds())/1000/float64(r.Answered))
		}
	}
	return list, nil
}

// row prints one server's figures, a peer's with the ratio of ours to it in each round.
func row(out io.Writer, rate float64, label string, ours, it *named, peer bool) {
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
		bound := bounds[label].saturated
		if rate > 0 {
			bound = bounds[label].rated
		}
		verdict := fmt.Sprintf("<= %.2f\tmet", bound)
		switch {
		case bound == 0:
			verdict = "none\t"
		case median(all) > bound:
			verdict = fmt.Sprintf("<= %.2f\tMISSED", bound)
		}
		ratio = fmt.Sprintf("%.3f\t%.3f\t%.3f\t%s", median(all), slices.Min(all), slices.Max(all), verdict)
	}
	fmt.Fprintf(out, "%s\t%s\t%.2f\t%s\t%.0f\t%s\t%s\t%d\t%d of %d\n", what, label, median(it.perAnswer), ratio,
		float64(it.Answered)/it.Took.Seconds(), it.P50, it.P99, it.Wrong+it.Bad, it.Lost, it.Sent)
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	if n := len(all); n%2 == 0 {
		return (all[n/2-1] + all[n/2]) / 2
	}
	return all[len(all)/2]
}

// entries prints what a resolver has to remember of all clients' answers, which is to be no more than with gdnsd.
func entries(out io.Writer, all []*server) error {
	counts := map[string]int{}
	for _, s := range all {
		total := 0
		for octet := byte(1); octet < 224; octet++ {
			if reserved[int(octet)] {
				continue
			}
			n, err := dnsload.Entries(s.addr, name, netip.AddrFrom4([4]byte{octet}), netip.AddrFrom4([4]byte{octet, 255, 255, 255}))
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
