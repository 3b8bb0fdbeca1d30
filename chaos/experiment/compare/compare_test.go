package compare

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
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
	dump           string // file of all outcomes; empty for none
	prompt, output load.LengthDist
	net            *fleet.MemoryNetwork // of the present run
	// runInBubble runs one run with virtual time and a network of its own.
	runInBubble func(func(context.Context, *fleet.MemoryNetwork) error) error
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

func compareAll(o *compareOptions) error {
	each, err := measureCapacity(o)
	if err != nil {
		return err
	}
	if len(o.policies) == 0 {
		return compareFairness(o)
	}
	rate := each * float64(o.workers) * o.loadShare
	fmt.Printf("One zone, %d simulated workers (%s, %s, each good for %.2f requests/s), %.1f requests/s: %.0f %% of what the healthy zone can do.\n",
		o.workers, o.gpu, o.model, each, rate, 100*o.loadShare)
	if o.faults {
		fmt.Printf("From %v on: w%d is 4 times as slow, w%d passes health checks and emits nothing, w%d leaks: out of memory every %d requests, back after %v.\n",
			o.faultDelay, slowWorker+1, lyingWorker+1, leakingWorker+1, leakRequests, leakRestart)
	}
	if err := printTable(o, rate, o.seeds, true); err != nil {
		return err
	}
	if o.withoutHealth && o.faults {
		fmt.Printf("\nThe same with health disabled: no ejection for stalls, errors or latency, no waiting after being out of memory.\n")
		if err := printTable(o, rate, 1, false); err != nil {
			return err
		}
	}
	if o.fair {
		return compareFairness(o)
	}
	return nil
}

// printTable runs every policy with every seed and prints the results.
func printTable(o *compareOptions, rate float64, seeds int, health bool) error {
	sums := make([]*policySummary, len(o.policies))
	for i, p := range o.policies {
		sums[i] = &policySummary{policy: p, slo: o.slo, workers: o.workers}
	}
	for seed := range seeds {
		printProgress("run %d of %d, %v each...", seed+1, seeds, o.arrivalSpan)
		for i, policy := range o.policies {
			var r *policyResult
			err := o.runIsolated(func(ctx context.Context) (err error) {
				r, err = playRun(ctx, o, policyRun{policy: policy, seed: uint64(seed + 1), rate: rate, span: o.arrivalSpan, faults: o.faults, health: health, workers: o.workers})
				return err
			})
			if err != nil {
				return err
			}
			sums[i].addRun(r)
			if err := o.appendOutcomes(policy, seed+1, health, r); err != nil {
				return err
			}
		}
	}
	printProgress("")
	printSummaries(os.Stdout, sums, o.faults)
	return nil
}

// runIsolated makes a run in virtual time.
func (o *compareOptions) runIsolated(f func(context.Context) error) error {
	return o.runInBubble(func(ctx context.Context, n *fleet.MemoryNetwork) error {
		o.net = n // of these options, which may be a copy: on another network virtual time would not advance
		return f(ctx)
	})
}

// printProgress prints a line that the next one overwrites.
func printProgress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "\r\x1b[K"+format, args...)
}
