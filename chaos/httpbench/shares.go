package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spillway-lb/spillway/chaos/machine"
)

// shares are what processes of one turn had of the machine's processors, and how long their threads were ready and had
// none: a delay that nobody made but the want of processors shows there.
type shares struct {
	of   []share
	busy time.Duration // of all processors
	took time.Duration
}

type share struct {
	label        string
	pid          int
	used, waited time.Duration
}

// sharing begins to look at who has the processors while a system is under load.
func (o *options) sharing(s *system) (*shares, error) {
	sh := &shares{of: []share{{label: "clients", pid: os.Getpid()}, {label: "worker", pid: o.workerPID}}}
	for _, h := range s.hops {
		for _, pid := range h.pids {
			sh.of = append(sh.of, share{label: h.label, pid: pid})
		}
	}
	return sh, sh.take(-1)
}

// end turns what was taken at the beginning into what was used since.
func (s *shares) end(took time.Duration) error {
	s.took = took
	return s.take(1)
}

func (s *shares) take(sign time.Duration) error {
	for i := range s.of {
		p := &s.of[i]
		used, err := machine.ProcessorTime(p.pid)
		if err != nil {
			return err
		}
		waited, err := machine.WaitingTime(p.pid)
		if err != nil {
			return err
		}
		p.used, p.waited = p.used+sign*used, p.waited+sign*waited
	}
	busy, err := machine.Busy()
	s.busy += sign * busy
	return err
}

// shareTable prints the medians of all turns, in percent of one processor.
func shareTable(list []*figures) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "OF PROCESSORS, %\tUSED BY (ITS THREADS READY WITHOUT ONE)\tALL IN USE")
	for _, f := range list {
		percent := func(part func(s *shares) time.Duration) float64 {
			var all []float64
			for _, s := range f.shares {
				all = append(all, 100*part(s).Seconds()/s.took.Seconds())
			}
			return median(all)
		}
		var words []string
		for i, p := range f.shares[0].of {
			words = append(words, fmt.Sprintf("%s %.0f (%.0f)", p.label,
				percent(func(s *shares) time.Duration { return s.of[i].used }), percent(func(s *shares) time.Duration { return s.of[i].waited })))
		}
		fmt.Fprintf(out, "%s\t%s\t%.0f\n", f.system.label, strings.Join(words, ", "), percent(func(s *shares) time.Duration { return s.busy }))
	}
	return out.Flush()
}
