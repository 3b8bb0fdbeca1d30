// Command uplinkbench measures the cost of a parent's end of many uplinks: children in one process continuously send
// changes of some of their models, and another process receives them, stores them in a capacity.SummaryTable and
// makes views, as a gateway and a global node do. It prints the parent's CPU time, its memory, and the age of its
// data since the child made it, which includes the transit time; then the same while one more child floods, lies or
// sends garbage. It does not fail for a missed target, except with -strict, because machines differ.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"
)

// uplinkBenchOptions are the options of a run.
type uplinkBenchOptions struct {
	children, models, changing int
	warmup, window             time.Duration
	strict, attacks            bool
	profile                    string

	// Set by the parent process for that of the children.
	parent, dir, rogue string
}

func main() {
	var o uplinkBenchOptions
	flag.IntVar(&o.children, "children", 1000, "sessions")
	flag.IntVar(&o.models, "models", 100, "in each child's summary")
	flag.IntVar(&o.changing, "moving", 10, "models of them that change with every summary of a child")
	flag.DurationVar(&o.warmup, "warmup", 15*time.Second, "time for sessions to settle before it is measured")
	flag.DurationVar(&o.window, "window", 30*time.Second, "time that is measured")
	flag.BoolVar(&o.strict, "strict", false, "fail when a target is missed")
	flag.StringVar(&o.profile, "profile", "", "write profiles of processor time and memory to files of this name: FILE.cpu, FILE.heap, and for the children FILE.children.cpu, FILE.children.heap")
	flag.StringVar(&o.parent, "parent", "", "run the children, of this parent")
	flag.BoolVar(&o.attacks, "attacks", true, "add one child that floods, claims another identity and sends garbage, and measure the effect on the others")
	flag.StringVar(&o.rogue, "rogue", "", "run that child of this parent: floods, lies or garbage")
	flag.StringVar(&o.dir, "dir", "", "where the children's certificates are")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := runParent
	switch {
	case o.rogue != "":
		run = runRogue
	case o.parent != "":
		run = runChildren
	}
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "uplinkbench:", err)
		os.Exit(1)
	}
}

// startProfile starts a CPU profile; the returned function ends it and writes a heap profile.
func startProfile(name string) (stop func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	cpu, err := os.Create(name + ".cpu")
	if err != nil {
		return nil, err
	}
	heap, err := os.Create(name + ".heap")
	if err == nil {
		err = pprof.StartCPUProfile(cpu)
	}
	return func() {
		pprof.StopCPUProfile()
		_ = errors.Join(pprof.WriteHeapProfile(heap), cpu.Close(), heap.Close()) // a failed profile does not fail the run
	}, err
}
