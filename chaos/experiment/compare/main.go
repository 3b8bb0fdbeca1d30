// Command compare compares the policies of one zone: a zone without gateways and with eight simulated workers, of
// which one is slowed, one passes health checks but emits nothing, and one leaks memory until it dies, gets the same
// requests at the same times under each policy. It prints one table: errors, times to first token, goodput, and each
// worker's share. Then it shows the effect of one tenant's flood on another, on slow and on fast GPUs.
//
// As a command it runs on loopback in real time. As a test (make compare) every run is in virtual time, over a
// network in memory, with the same tiers and workers: a minute takes seconds, and a busy machine changes no result.
//
// The tests in this package hold the bounds of its figures.
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

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
)

// compareOptions are the options of a comparison.
type compareOptions struct {
	policies       []string
	seeds          int
	arrivalSpan    time.Duration // of arrivals
	faultDelay     time.Duration // until faults are injected
	loadShare      float64       // offered fraction of a healthy zone's capacity
	slo            time.Duration // for a first token
	gpu, model     string
	workers        int
	fairGPUs       []string
	fairSeeds      int
	faults, fair   bool
	withoutHealth  bool
	oneByOne       bool
	dump           string // file of all outcomes; empty for none
	prompt, output load.LengthDist
	net            *fleet.MemoryNetwork // nil: loopback
	// runInBubble runs one run with virtual time and a network of its own; nil: in real time.
	runInBubble func(func(context.Context, *fleet.MemoryNetwork) error) error
}

func main() {
	o, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err == nil {
		err = compareAll(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (*compareOptions, error) {
	o := &compareOptions{
		prompt: load.LengthDist{Median: 500, P90: 1500, Max: 4000}, output: load.LengthDist{Median: 60, P90: 120, Max: 200}, workers: 8,
	}
	f := flag.NewFlagSet("compare", flag.ContinueOnError)
	names := f.String("policies", "round_robin,least_connections,predictive", "policies to compare, or all, or none for fairness alone")
	f.IntVar(&o.seeds, "seeds", 3, "how many runs with arrivals of their own")
	f.DurationVar(&o.arrivalSpan, "for", time.Minute, "how long requests arrive in each run")
	f.DurationVar(&o.faultDelay, "after", 10*time.Second, "when the faults of three workers are injected")
	f.Float64Var(&o.loadShare, "busy", 0.65, "part of the healthy zone's capacity that is offered")
	f.DurationVar(&o.slo, "slo", 2*time.Second, "time to first token that counts as good")
	f.StringVar(&o.gpu, "gpu", "L4", "GPU of the simulated workers")
	f.StringVar(&o.model, "model", "Llama-3.1-8B", "model of the simulated workers")
	f.BoolVar(&o.faults, "faults", true, "inject faults into three workers")
	f.BoolVar(&o.fair, "fair", true, "then show the effect of one tenant's flood on another")
	kinds := f.String("fair-gpus", "L4,H100", "GPUs of the simulated workers for that")
	f.IntVar(&o.fairSeeds, "fair-seeds", 5, "runs of that with arrivals of their own, on each")
	f.BoolVar(&o.withoutHealth, "healthless", true, "then show the policies alone, with ejection for stalls, errors and latency off (one seed)")
	f.BoolVar(&o.oneByOne, "one-by-one", false, "run the policies one after the other instead of concurrently")
	f.StringVar(&o.dump, "dump", "", "write every request's outcome to this file, as CSV")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	o.policies, o.fairGPUs = strings.Split(*names, ","), strings.Split(*kinds, ",")
	switch *names {
	case "all":
		o.policies = spec.WorkerPolicies()
	case "none":
		o.policies = nil
	}
	for _, p := range o.policies {
		if _, err := pick.ParsePolicy(p); err != nil {
			return nil, err
		}
	}
	if o.seeds < 1 || o.fairSeeds < 1 || !(o.loadShare > 0) || o.loadShare > 10 {
		return nil, errors.New("use at least one seed, and a load over 0 and up to 10")
	}
	return o, nil
}

func compareAll(ctx context.Context, o *compareOptions) error {
	each, err := measureCapacity(o)
	if err != nil {
		return err
	}
	if len(o.policies) == 0 {
		return compareFairness(ctx, o)
	}
	rate := each * float64(o.workers) * o.loadShare
	fmt.Printf("One zone, %d simulated workers (%s, %s, each good for %.2f requests/s), %.1f requests/s: %.0f %% of what the healthy zone can do.\n",
		o.workers, o.gpu, o.model, each, rate, 100*o.loadShare)
	if o.faults {
		fmt.Printf("From %v on: w%d is 4 times as slow, w%d passes health checks and emits nothing, w%d leaks: out of memory every %d requests, back after %v.\n",
			o.faultDelay, slowWorker+1, lyingWorker+1, leakingWorker+1, leakRequests, leakRestart)
	}
	if err := printTable(ctx, o, rate, o.seeds, true); err != nil {
		return err
	}
	if o.withoutHealth && o.faults {
		fmt.Printf("\nThe same with health disabled: no ejection for stalls, errors or latency, no waiting after being out of memory.\n")
		if err := printTable(ctx, o, rate, 1, false); err != nil {
			return err
		}
	}
	if o.fair {
		return compareFairness(ctx, o)
	}
	return nil
}

// printTable runs every policy with every seed and prints the results.
func printTable(ctx context.Context, o *compareOptions, rate float64, seeds int, health bool) error {
	sums := make([]*policySummary, len(o.policies))
	for i, p := range o.policies {
		sums[i] = &policySummary{policy: p, slo: o.slo, workers: o.workers}
	}
	for seed := range seeds {
		printProgress("run %d of %d, %v each...", seed+1, seeds, o.arrivalSpan)
		err := runAll(o.oneByOne, len(o.policies), func(i int) error {
			var r *policyResult
			err := o.runIsolated(ctx, func(ctx context.Context) (err error) {
				r, err = playRun(ctx, o, policyRun{policy: o.policies[i], seed: uint64(seed + 1), rate: rate, span: o.arrivalSpan, faults: o.faults, health: health, workers: o.workers})
				return err
			})
			if err != nil {
				return err
			}
			sums[i].addRun(r)
			return o.appendOutcomes(o.policies[i], seed+1, health, r)
		})
		if err != nil {
			return err
		}
	}
	printProgress("")
	printSummaries(os.Stdout, sums, o.faults)
	return ctx.Err()
}

// runIsolated makes a run, in virtual time if configured.
func (o *compareOptions) runIsolated(ctx context.Context, f func(context.Context) error) error {
	if o.runInBubble == nil {
		return f(ctx)
	}
	return o.runInBubble(func(ctx context.Context, n *fleet.MemoryNetwork) error {
		o.net = n // of these options, which may be a copy: on another network virtual time would not advance
		return f(ctx)
	})
}

// runAll makes n runs concurrently, or one by one.
func runAll(oneByOne bool, n int, run func(int) error) error {
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

// printProgress prints a line that the next one overwrites.
func printProgress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "\r\x1b[K"+format, args...)
}
