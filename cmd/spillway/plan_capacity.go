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

	"github.com/spillway-lb/spillway/chaos/lab"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/internal/spec"
)

// capacityAsk holds the flags of plan-capacity.
type capacityAsk struct {
	file, trace, model, traces, output string
	slo, gpus, shares, dollars         []string
	workload                           load.Workload
	length, warmUp                     time.Duration
	most                               int
	seed                               uint64
}

func planCapacityCommand() *cobra.Command {
	a := capacityAsk{}
	cmd := &cobra.Command{
		Use:   "plan-capacity -f spec.yaml --trace FILE|NAME --slo ttft_p99=2s",
		Short: "How many workers each region and zone needs for a trace and a goal, with and without spilling, and what they cost",
		Long: `How many workers each region and zone of a spec needs for a trace and a goal: the fewest that meet it for the clients of
every region, found by running the simulator on more and fewer. Once with each region for itself, once with regions that
spill to each other. --trace is a trace file (Azure 2023 or Mooncake) or a workload's name (w1 to w10). A request that is
refused misses every goal. Where no number of workers helps, it says what does not.`,
		Example: "  spillway plan-capacity -f spec.yaml --trace AzureLLMInferenceTrace_conv.csv.gz --slo ttft_p99=2s --gpu H100\n" +
			"  spillway plan-capacity -f spec.yaml --trace w7 --rate 40 --slo ttft_p99=2s,tpot_p99=100ms --gpu H100x2,frankfurt=A100-80Gx4 --share virginia=3,frankfurt=1",
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&a.file, "file", "f", "", "the spec")
	f.StringVar(&a.trace, "trace", "", "what is asked: a trace file, or a workload's name")
	f.StringSliceVar(&a.slo, "slo", []string{"ttft_p99=2s"}, "goals: a time and its bound")
	f.StringSliceVar(&a.gpus, "gpu", []string{"H100"}, "GPU of one worker, such as H100 or H100x4; REGION=GPU for one region")
	f.StringVar(&a.model, "model", "", "model to plan for (default: the spec's first)")
	f.Float64Var(&a.workload.Rate, "rate", 0, "requests per second of all regions (default: the trace's own)")
	f.StringSliceVar(&a.shares, "share", nil, "REGION=N: how many clients are at home there, against the other regions (default: the same everywhere)")
	f.StringSliceVar(&a.dollars, "usd-per-gpu-hour", nil, "price, or REGION=price (default: what is usual for the type)")
	f.IntVar(&a.workload.Sessions, "sessions", 0, "sessions of a workload that has them")
	f.IntVar(&a.workload.MaxPrompt, "max-prompt", 0, "cut longer prompts, in tokens")
	f.IntVar(&a.workload.MaxOutput, "max-output", 0, "cut longer answers, in tokens")
	f.DurationVar(&a.workload.From, "from", 0, "where in a week's trace to begin")
	f.DurationVar(&a.length, "for", 10*time.Minute, "how much of the trace")
	f.DurationVar(&a.warmUp, "warm-up", time.Minute, "how much of the beginning is not measured")
	f.IntVar(&a.most, "most", 512, "most workers of one region to try")
	f.Uint64Var(&a.seed, "seed", 1, "seed of all chance")
	outputFlag(cmd, &a.output)
	tracesFlag(cmd, &a.traces)
	return cmd
}

func (a *capacityAsk) run(ctx context.Context, out, errOut io.Writer) error {
	d, err := a.demand()
	if err != nil {
		return err
	}
	report, end := showRun(errOut, "plan-capacity")
	d.Progress = report
	p, err := lab.Provision(ctx, *d)
	end()
	if err != nil {
		return err
	}
	if a.output == "json" {
		return printJSON(out, p)
	}
	printCapacity(out, p)
	return nil
}

// demand turns flags and spec into what is planned for.
func (a *capacityAsk) demand() (*lab.Demand, error) {
	s, err := a.spec()
	if err != nil {
		return nil, err
	}
	d := &lab.Demand{Model: a.model, Policy: s.Routing.Policy, Workload: a.workload, Duration: a.length, WarmUp: a.warmUp, Most: a.most, Seed: a.seed}
	if d.Model == "" && len(s.Models) > 0 {
		d.Model = s.Models[0].Name
	}
	d.Workload.Traces = a.traces
	names, _ := load.Workloads()
	switch {
	case a.trace == "":
		return nil, errors.New("say what is asked: --trace with a trace file, or a workload's name such as w1")
	case slices.Contains(names, strings.ToLower(a.trace)):
		d.Workload.Name = strings.ToLower(a.trace)
	default:
		if _, err := os.Stat(a.trace); err != nil {
			return nil, fmt.Errorf("--trace %s is neither a file nor a workload\nhint: name a trace file, or one of %s", a.trace, strings.Join(names, ", "))
		}
		d.Workload.Name, d.Workload.Trace = "w1", a.trace
	}
	for _, text := range a.slo {
		g, err := lab.ParseGoal(text)
		if err != nil {
			return nil, fmt.Errorf("--slo: %w", err)
		}
		d.Goals = append(d.Goals, g)
	}
	for i := range s.Regions {
		site, err := a.site(&s.Regions[i], s)
		if err != nil {
			return nil, err
		}
		d.Sites = append(d.Sites, site)
	}
	return d, nil
}

func (a *capacityAsk) spec() (*spec.Spec, error) {
	if a.file == "" {
		return nil, errors.New("say for which regions: -f spec.yaml\nhint: `spillway get spec` prints the one in force")
	}
	f, err := os.Open(a.file)
	if err != nil {
		return nil, fmt.Errorf("opening the spec: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, strict.MaxText+1))
	if err != nil {
		return nil, fmt.Errorf("reading the spec: %w", err)
	}
	return spec.Decode(a.file, text)
}

func (a *capacityAsk) site(r *spec.Region, s *spec.Spec) (lab.Site, error) {
	out := lab.Site{Name: r.Name, Zones: r.Zones, Lat: r.Place.Lat, Lon: r.Place.Lon, Share: 1, GPU: "H100"}
	for _, x := range []struct {
		flag string
		list []string
		set  func(string) error
	}{
		{"gpu", a.gpus, func(v string) error { return setGPU(&out, v) }},
		{"share", a.shares, func(v string) error { return positive(v, &out.Share) }},
		{"usd-per-gpu-hour", a.dollars, func(v string) error { return positive(v, &out.Dollars) }},
	} {
		for _, text := range x.list {
			region, value, of := strings.Cut(text, "=")
			if !of {
				region, value = r.Name, text
			}
			if of && s.Region(region) == nil {
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

// setGPU reads H100 or H100x4.
func setGPU(s *lab.Site, text string) error {
	s.GPU, s.TP = text, 0
	if i := strings.LastIndexByte(text, 'x'); i > 0 {
		n, err := strconv.Atoi(text[i+1:])
		if err != nil || n < 1 {
			return errors.New("write a type and how many work as one, such as H100x4")
		}
		s.GPU, s.TP = text[:i], n
	}
	return nil
}

func positive(text string, to *float64) error {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v <= 0 || v > 1e6 {
		return errors.New("write a number above zero")
	}
	*to = v
	return nil
}

func printCapacity(w io.Writer, p *lab.CapacityPlan) {
	fmt.Fprintf(w, "%s for %s: %s\n", p.Model, p.Workload, strings.Join(p.Goals, ", "))
	table(w, func(t io.Writer) {
		fmt.Fprintln(t, "REGION\tZONE\tGPU\tWORKERS APART\tWORKERS WITH SPILL")
		for _, r := range p.Rows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\n", r.Region, r.Zone, r.GPU, r.Apart, r.Shared)
		}
		fmt.Fprintf(t, "all\t\t\t%d\t%d\n", p.Apart.Workers, p.Shared.Workers)
		fmt.Fprintf(t, "$ per hour\t\t\t%.2f\t%.2f\n", p.Apart.Dollars, p.Shared.Dollars)
		for _, g := range p.Goals {
			name, _, _ := strings.Cut(g, " ")
			fmt.Fprintf(t, "%s\t\t\t%s\t%s\n", name, capacityFigure(p.Apart.Figures, name), capacityFigure(p.Shared.Figures, name))
		}
	})
	for _, f := range p.Finds {
		fmt.Fprintln(w, f)
	}
}

func capacityFigure(figures map[string]float64, name string) string {
	v, ok := figures[name]
	if !ok {
		return "-"
	}
	return lab.Figure(v, "s")
}
