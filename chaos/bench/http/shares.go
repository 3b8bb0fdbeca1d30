//go:build !windows

package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spillway-lb/spillway/chaos/bench/machine"
)

// cpuShares are the processes' CPU times in one turn, and how long their threads were ready without a processor:
// delays that are caused only by a lack of processors show there.
type cpuShares struct {
	processes []processShare
	totalCPU  time.Duration // of all processors
	took      time.Duration
}

type processShare struct {
	label        string
	pid          int
	used, waited time.Duration
}

// startShares starts to measure CPU times while a system is under load.
func (o *httpBenchOptions) startShares(s *benchSystem) (*cpuShares, error) {
	sh := &cpuShares{processes: []processShare{{label: "clients", pid: os.Getpid()}, {label: "worker", pid: o.workerPID}}}
	for _, h := range s.hops {
		for _, pid := range h.pids {
			sh.processes = append(sh.processes, processShare{label: h.label, pid: pid})
		}
	}
	return sh, sh.addTimes(-1)
}

// finishShares converts the initial values to the usage since then.
func (s *cpuShares) finishShares(took time.Duration) error {
	s.took = took
	return s.addTimes(1)
}

func (s *cpuShares) addTimes(sign time.Duration) error {
	for i := range s.processes {
		p := &s.processes[i]
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
	busy, err := machine.TotalCPUTime()
	s.totalCPU += sign * busy
	return err
}

// printShares prints the medians of all turns, in percent of one processor.
func printShares(list []*systemFigures) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "OF PROCESSORS, %\tUSED BY (ITS THREADS READY WITHOUT ONE)\tALL IN USE")
	for _, f := range list {
		percent := func(part func(s *cpuShares) time.Duration) float64 {
			var all []float64
			for _, s := range f.shares {
				all = append(all, 100*part(s).Seconds()/s.took.Seconds())
			}
			return medianOf(all)
		}
		var words []string
		for i, p := range f.shares[0].processes {
			words = append(words, fmt.Sprintf("%s %.0f (%.0f)", p.label,
				percent(func(s *cpuShares) time.Duration { return s.processes[i].used }), percent(func(s *cpuShares) time.Duration { return s.processes[i].waited })))
		}
		fmt.Fprintf(out, "%s\t%s\t%.0f\n", f.system.label, strings.Join(words, ", "), percent(func(s *cpuShares) time.Duration { return s.totalCPU }))
	}
	return out.Flush()
}
