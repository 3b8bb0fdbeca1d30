package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
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
