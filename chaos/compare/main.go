package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/chaos/memnet"
	"github.com/spillway-lb/spillway/local/pick"
)

// options of a comparison.
type options struct {
	policies     []string
	seeds        int
	span         time.Duration // of arrivals
	after        time.Duration // until workers fall ill
	busy         float64       // part of a healthy zone's capacity that is offered
	slo          time.Duration // for a first token
	gpu, model   string
	workers      int
	fairGPUs     []string
	fairSeeds    int
	faults, fair bool
	healthless   bool
	oneByOne     bool
	dump         string // file of all outcomes; empty for none
	prompt, out  load.Lengths
	net          *memnet.Net // nil: loopback
	// bubble runs a trial in a time and on a network of its own; nil: here and now.
	bubble func(func(context.Context, *memnet.Net) error) error
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err == nil {
		err = compare(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	o := &options{
		prompt: load.Lengths{Median: 500, P90: 1500, Max: 4000}, out: load.Lengths{Median: 60, P90: 120, Max: 200}, workers: 8,
	}
	f := flag.NewFlagSet("compare", flag.ContinueOnError)
	names := f.String("policies", "round_robin,least_connections,predictive", "policies to compare, or all, or none for fairness alone")
	f.IntVar(&o.seeds, "seeds", 3, "how many runs with arrivals of their own")
	f.DurationVar(&o.span, "for", time.Minute, "how long requests arrive in each run")
	f.DurationVar(&o.after, "after", 10*time.Second, "when the three workers fall ill")
	f.Float64Var(&o.busy, "busy", 0.65, "part of the healthy zone's capacity that is offered")
	f.DurationVar(&o.slo, "slo", 2*time.Second, "time to first token that counts as good")
	f.StringVar(&o.gpu, "gpu", "L4", "GPU of the stand-in workers")
	f.StringVar(&o.model, "model", "Llama-3.1-8B", "model of the stand-in workers")
	f.BoolVar(&o.faults, "faults", true, "make three workers ill")
	f.BoolVar(&o.fair, "fair", true, "then show what a tenant notices of another one's flood")
	kinds := f.String("fair-gpus", "L4,H100", "GPUs of the stand-in workers for that")
	f.IntVar(&o.fairSeeds, "fair-seeds", 5, "runs of that with arrivals of their own, on each")
	f.BoolVar(&o.healthless, "healthless", true, "then show the policies alone, with ejection for stalls, errors and latency off (one seed)")
	f.BoolVar(&o.oneByOne, "one-by-one", false, "run the policies one after the other instead of side by side")
	f.StringVar(&o.dump, "dump", "", "write every request's outcome to this file, as CSV")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	o.policies, o.fairGPUs = strings.Split(*names, ","), strings.Split(*kinds, ",")
	switch *names {
	case "all":
		o.policies = pick.Policies()
	case "none":
		o.policies = nil
	}
	for _, p := range o.policies {
		if _, err := pick.ParsePolicy(p); err != nil {
			return nil, err
		}
	}
	if o.seeds < 1 || o.fairSeeds < 1 || !(o.busy > 0) || o.busy > 10 {
		return nil, errors.New("use at least one seed, and a load over 0 and up to 10")
	}
	return o, nil
}

func compare(ctx context.Context, o *options) error {
	each, err := capacity(o)
	if err != nil {
		return err
	}
	if len(o.policies) == 0 {
		return fairnesses(ctx, o)
	}
	rate := each * float64(o.workers) * o.busy
	fmt.Printf("One zone, %d stand-in workers (%s, %s, each good for %.2f requests/s), %.1f requests/s: %.0f %% of what the healthy zone can do.\n",
		o.workers, o.gpu, o.model, each, rate, 100*o.busy)
	if o.faults {
		fmt.Printf("From %v on: w%d is 4 times as slow, w%d says it is well and emits nothing, w%d leaks: out of memory every %d requests, back after %v.\n",
			o.after, slowed+1, lying+1, leaking+1, leakRequests, leakRestart)
	}
	if err := table(ctx, o, rate, o.seeds, true); err != nil {
		return err
	}
	if o.healthless && o.faults {
		fmt.Printf("\nThe same with health as good as off: no ejection for stalls, errors or latency, no waiting after being out of memory.\n")
		if err := table(ctx, o, rate, 1, false); err != nil {
			return err
		}
	}
	if o.fair {
		return fairnesses(ctx, o)
	}
	return nil
}

// table runs every policy with every seed and prints what came of it.
func table(ctx context.Context, o *options, rate float64, seeds int, health bool) error {
	sums := make([]*sum, len(o.policies))
	for i, p := range o.policies {
		sums[i] = &sum{policy: p, slo: o.slo, workers: o.workers}
	}
	for seed := range seeds {
		progress("run %d of %d, %v each...", seed+1, seeds, o.span)
		err := together(o.oneByOne, len(o.policies), func(i int) error {
			var r *result
			err := o.run(ctx, func(ctx context.Context) (err error) {
				r, err = play(ctx, o, trial{policy: o.policies[i], seed: uint64(seed + 1), rate: rate, span: o.span, faults: o.faults, health: health, workers: o.workers})
				return err
			})
			if err != nil {
				return err
			}
			sums[i].add(r)
			return o.write(o.policies[i], seed+1, health, r)
		})
		if err != nil {
			return err
		}
	}
	progress("")
	printSums(os.Stdout, sums, o.faults)
	return ctx.Err()
}

// run makes a run, in a time of its own where there is one.
func (o *options) run(ctx context.Context, f func(context.Context) error) error {
	if o.bubble == nil {
		return f(ctx)
	}
	return o.bubble(func(ctx context.Context, n *memnet.Net) error {
		o.net = n // of these options, which may be a copy: on any other network virtual time would stand still
		return f(ctx)
	})
}

// together runs n things side by side, or one by one.
func together(oneByOne bool, n int, run func(int) error) error {
	errs := make([]error, n)
	done := make(chan struct{}, n)
	for i := range n {
		if oneByOne {
			errs[i] = run(i)
			continue
		}
		go func() {
			errs[i] = run(i)
			done <- struct{}{}
		}()
	}
	for range n {
		if !oneByOne {
			<-done
		}
	}
	return errors.Join(slices.Clone(errs)...)
}

// progress shows a line that the next one replaces.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "\r\x1b[K"+format, args...)
}
