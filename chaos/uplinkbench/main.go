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

// options of a run.
type options struct {
	children, models, moving int
	warmup, window           time.Duration
	strict, attacks          bool
	profile                  string

	// What the process of children is told by the other.
	parent, dir, rogue string
}

func main() {
	var o options
	flag.IntVar(&o.children, "children", 1000, "sessions")
	flag.IntVar(&o.models, "models", 100, "in each child's statement")
	flag.IntVar(&o.moving, "moving", 10, "models of them that have changed whenever a child makes a statement")
	flag.DurationVar(&o.warmup, "warmup", 15*time.Second, "time for sessions to settle before it is measured")
	flag.DurationVar(&o.window, "window", 30*time.Second, "time that is measured")
	flag.BoolVar(&o.strict, "strict", false, "fail when a target is missed")
	flag.StringVar(&o.profile, "profile", "", "write profiles of processor time and memory to files of this name: FILE.cpu, FILE.heap, and of the children FILE.children.cpu, FILE.children.heap")
	flag.StringVar(&o.parent, "parent", "", "run the children, of this parent")
	flag.BoolVar(&o.attacks, "attacks", true, "have one child more flood, lie about itself and send garbage, and measure what the others notice")
	flag.StringVar(&o.rogue, "rogue", "", "be that child of this parent: floods, lies or garbage")
	flag.StringVar(&o.dir, "dir", "", "where the children's certificates are")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := bench
	switch {
	case o.rogue != "":
		run = misbehave
	case o.parent != "":
		run = crowd
	}
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "uplinkbench:", err)
		os.Exit(1)
	}
}
