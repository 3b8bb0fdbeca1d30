package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/chaos/experiment"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/internal/spec"
)

// planCapacityOptions holds the flags of plan-capacity.
type planCapacityOptions struct {
	specFile, trace, model, tracesDir, output string
	slo, gpus, shares, gpuHourPrices          []string
	workload                                  load.Workload
	duration, warmUp                          time.Duration
	maxWorkers                                int
	seed                                      uint64
}

func newPlanCapacityCommand() *cobra.Command {
	a := planCapacityOptions{}
	cmd := &cobra.Command{
		Use:   "plan-capacity -f spec.yaml --trace FILE|NAME --slo ttft_p99=2s",
		Short: "Compute the workers and cost that each region and zone needs for a trace and an SLO, with and without spilling",
		Long: `Compute the smallest number of workers of each region and zone of a spec that meets an SLO for the clients of every region,
by a search with the simulator. It is computed twice: with isolated regions and with regions that spill to each other.
--trace is a trace file (Azure 2023 or Mooncake) or the name of a workload (w1 to w10). A rejected request misses every
goal. If no number of workers meets the goal, the limiting factor is reported.`,
		Example: "  spillway plan-capacity -f spec.yaml --trace AzureLLMInferenceTrace_conv.csv.gz --slo ttft_p99=2s --gpu H100\n" +
			"  spillway plan-capacity -f spec.yaml --trace w7 --rate 40 --slo ttft_p99=2s,tpot_p99=100ms --gpu H100x2,frankfurt=A100-80Gx4 --share virginia=3,frankfurt=1",
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.runPlanCapacity(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&a.specFile, "file", "f", "", "the spec")
	f.StringVar(&a.trace, "trace", "", "demand: a trace file, or the name of a workload")
	f.StringSliceVar(&a.slo, "slo", []string{"ttft_p99=2s"}, "goals: metric=limit")
	f.StringSliceVar(&a.gpus, "gpu", []string{"H100"}, "GPU of one worker, such as H100 or H100x4; REGION=GPU for one region")
	f.StringVar(&a.model, "model", "", "model to plan for (default: the first of the spec)")
	f.Float64Var(&a.workload.Rate, "rate", 0, "requests per second of all regions (default: that of the trace)")
	f.StringSliceVar(&a.shares, "share", nil, "REGION=N: relative number of clients near the region (default: equal)")
	f.StringSliceVar(&a.gpuHourPrices, "usd-per-gpu-hour", nil, "price, or REGION=price (default: a typical price of the GPU type)")
	f.IntVar(&a.workload.Sessions, "sessions", 0, "number of sessions, for workloads with sessions")
	f.IntVar(&a.workload.MaxPrompt, "max-prompt", 0, "truncate longer prompts, in tokens")
	f.IntVar(&a.workload.MaxOutput, "max-output", 0, "truncate longer outputs, in tokens")
	f.DurationVar(&a.workload.From, "from", 0, "start offset in a trace of a week")
	f.DurationVar(&a.duration, "for", 10*time.Minute, "length of the part of the trace to use")
	f.DurationVar(&a.warmUp, "warm-up", time.Minute, "time at the beginning that is not measured")
	f.IntVar(&a.maxWorkers, "max-workers", 512, "maximum number of workers of one region to try")
	addDeprecatedFlag(f, "most", "max-workers")
	f.Uint64Var(&a.seed, "seed", 1, "seed of all random choices")
	addOutputFlag(cmd, &a.output)
	addTracesFlag(cmd, &a.tracesDir)
	return cmd
}

func (a *planCapacityOptions) runPlanCapacity(ctx context.Context, out, errOut io.Writer) error {
	d, err := a.buildDemand()
	if err != nil {
		return err
	}
	report, end := startProgress(errOut, "plan-capacity")
	d.OnProgress = report
	p, err := experiment.PlanCapacity(ctx, *d)
	end()
	if err != nil {
		return err
	}
	if isStructured(a.output) {
		return printStructured(out, a.output, p)
	}
	printCapacityPlan(out, p)
	return nil
}

// buildDemand builds the planner's input from the flags and the spec.
func (a *planCapacityOptions) buildDemand() (*experiment.PlanDemand, error) {
	s, err := a.loadSpec()
	if err != nil {
		return nil, err
	}
	d := &experiment.PlanDemand{Model: a.model, Policy: s.Routing.Policy, Workload: a.workload, Duration: a.duration, WarmUp: a.warmUp, MaxWorkers: a.maxWorkers, Seed: a.seed}
	if d.Model == "" && len(s.Models) > 0 {
		d.Model = s.Models[0].Name
	}
	d.Workload.Traces = a.tracesDir
	names, _ := load.WorkloadNames()
	switch {
	case a.trace == "":
		return nil, errors.New("no demand is given: write --trace with a trace file, or with a workload's name such as w1")
	case slices.Contains(names, strings.ToLower(a.trace)):
		d.Workload.Name = strings.ToLower(a.trace)
	default:
		if _, err := os.Stat(a.trace); err != nil {
			return nil, fmt.Errorf("--trace %s is neither a file nor a workload\nhint: name a trace file, or one of %s", a.trace, strings.Join(names, ", "))
		}
		d.Workload.Name, d.Workload.Trace = "w1", a.trace
	}
	for _, text := range a.slo {
		g, err := experiment.ParseGoal(text)
		if err != nil {
			return nil, fmt.Errorf("--slo: %w", err)
		}
		d.Goals = append(d.Goals, g)
	}
	for i := range s.Regions {
		site, err := a.buildSite(&s.Regions[i], s)
		if err != nil {
			return nil, err
		}
		d.Sites = append(d.Sites, site)
	}
	return d, nil
}

func (a *planCapacityOptions) loadSpec() (*spec.Spec, error) {
	if a.specFile == "" {
		return nil, errors.New("no spec is given: write -f spec.yaml\nhint: `spillway get spec` prints the one in force")
	}
	f, err := os.Open(a.specFile)
	if err != nil {
		return nil, fmt.Errorf("opening the spec: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, strict.MaxTextBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the spec: %w", err)
	}
	return spec.Decode(a.specFile, text)
}

func (a *planCapacityOptions) buildSite(r *spec.Region, s *spec.Spec) (experiment.PlanSite, error) {
	out := experiment.PlanSite{Name: r.Name, Zones: r.Zones, Lat: r.Place.Lat, Lon: r.Place.Lon, Share: 1, GPU: "H100"}
	for _, x := range []struct {
		flag string
		list []string
		set  func(string) error
	}{
		{"gpu", a.gpus, func(v string) error { return parseGPU(&out, v) }},
		{"share", a.shares, func(v string) error { return parsePositive(v, &out.Share) }},
		{"usd-per-gpu-hour", a.gpuHourPrices, func(v string) error { return parsePositive(v, &out.Dollars) }},
	} {
		for _, text := range x.list {
			region, value, of := strings.Cut(text, "=")
			if !of {
				region, value = r.Name, text
			}
			if of && s.FindRegion(region) == nil {
				return out, fmt.Errorf("--%s %s: the spec has no region %q", x.flag, text, region)
			}
			if region != r.Name {
				continue
			}
			if err := x.set(value); err != nil {
				return out, fmt.Errorf("--%s %s: %w", x.flag, text, err)
			}
		}
	}
	return out, nil
}

// parseGPU parses a GPU type with an optional count, such as H100 or H100x4.
func parseGPU(s *experiment.PlanSite, text string) error {
	s.GPU, s.TP = text, 0
	if i := strings.LastIndexByte(text, 'x'); i > 0 {
		n, err := strconv.Atoi(text[i+1:])
		if err != nil || n < 1 {
			return errors.New("write a GPU type and the number of GPUs of one worker, such as H100x4")
		}
		s.GPU, s.TP = text[:i], n
	}
	return nil
}

func parsePositive(text string, to *float64) error {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v <= 0 || v > 1e6 {
		return errors.New("write a positive number")
	}
	*to = v
	return nil
}

func printCapacityPlan(w io.Writer, p *experiment.CapacityPlan) {
	fmt.Fprintf(w, "%s for %s: %s\n", p.Model, p.Workload, strings.Join(p.Goals, ", "))
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "REGION\tZONE\tGPU\tWORKERS ISOLATED\tWORKERS WITH SPILL")
		for _, r := range p.Zones {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\n", r.Region, r.Zone, r.GPU, r.Apart, r.Shared)
		}
		fmt.Fprintf(t, "all\t\t\t%d\t%d\n", p.Apart.Workers, p.Shared.Workers)
		fmt.Fprintf(t, "$ per hour\t\t\t%.2f\t%.2f\n", p.Apart.Dollars, p.Shared.Dollars)
		for _, g := range p.Goals {
			name, _, _ := strings.Cut(g, " ")
			fmt.Fprintf(t, "%s\t\t\t%s\t%s\n", name, formatCapacityFigure(p.Apart.Figures, name), formatCapacityFigure(p.Shared.Figures, name))
		}
	})
	for _, f := range p.Findings {
		fmt.Fprintln(w, f)
	}
}

func formatCapacityFigure(figures map[string]float64, name string) string {
	v, ok := figures[name]
	if !ok {
		return "-"
	}
	return experiment.FormatFigure(v, "s")
}
