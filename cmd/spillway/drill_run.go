package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/chaos/drill/archive"
	"github.com/spillway-lb/spillway/chaos/drill/live"
	"github.com/spillway-lb/spillway/chaos/drill/virtual"
)

// drillRunOptions holds the flags of drill run.
type drillRunOptions struct {
	file, dir, output string
	virtual, all      bool
	seed              uint64
	net               int
}

func newDrillRunCommand() *cobra.Command {
	var o drillRunOptions
	cmd := &cobra.Command{
		Use:   "run [NAME | -f FILE | --all] [--virtual]",
		Short: "Run a drill and judge it",
		Long: `Run a drill and judge it. With --virtual it runs in the simulator, in seconds, and the same seed gives the same log to the last byte.
Without it, it runs live: a fleet of processes with a relay on each link is started on this machine, and the same file with the same
arrivals runs in the simulator first, so that the report shows what was predicted next to what was measured. A live run takes as
long as its file states, and needs a quiet machine: a busy one makes it void. It needs Linux and no privileges. --all runs every drill of the catalogue that the simulator can carry; there a drill with an open finding may fail.`,
		Example: "  spillway drill run region-loss --virtual\n  spillway drill run -f mine.txt --virtual --seed 7\n  spillway drill run --all --virtual",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.runDrills(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
		},
	}
	addRunsFlag(cmd, &o.dir)
	addOutputFlag(cmd, &o.output)
	f := cmd.Flags()
	f.StringVarP(&o.file, "file", "f", "", "file of the drill, instead of a name")
	f.BoolVar(&o.virtual, "virtual", false, "run in the simulator")
	f.BoolVar(&o.all, "all", false, "run every drill of the catalogue")
	f.IntVar(&o.net, "net", 60, "second byte of the addresses 127.N.0.0 of a live fleet, 0 to 89")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the arrivals, and of all randomness of the simulator")
	return cmd
}

func (o *drillRunOptions) runDrills(ctx context.Context, w, errOut io.Writer, args []string) error {
	const usage = "drill run [NAME | -f FILE | --all] [--virtual]"
	var files []*drill.DrillFile
	if o.all {
		if o.file != "" || len(args) > 0 {
			return newUsageError(usage, "--all runs the whole catalogue: leave the name and -f out")
		}
		all, err := drill.LoadCatalogue()
		if err != nil {
			return err
		}
		files = slices.DeleteFunc(all, func(f *drill.DrillFile) bool { return o.virtual && virtual.Unsupported(f) != "" })
	} else {
		f, err := readDrill(usage, o.file, args)
		if err != nil {
			return err
		}
		files = []*drill.DrillFile{f}
	}
	a := archive.Open(o.dir)
	if err := checkDrillAllowed(a); err != nil {
		return err
	}
	var worst error
	for _, f := range files {
		if reason := a.LeverReason(); reason != "" {
			return checkDrillAllowed(a)
		}
		if reason := live.Unsupported(f); !o.virtual && o.all && reason != "" {
			continue
		}
		r, id, err := o.runOne(ctx, a, f, errOut)
		if err != nil {
			return err
		}
		if err := o.printResult(w, r, id, len(files) > 1); err != nil {
			return err
		}
		if len(files) > 1 && r.Open != "" && r.Verdict.Outcome == drill.FailedHypothesis {
			fmt.Fprintf(w, "  open finding: %s\n", r.Open)
			continue
		}
		if err := outcomeError(r.Verdict.Outcome); worst == nil || errors.Is(err, errAlreadyReported) && exitCodeOf(err) == 1 {
			worst = err
		}
	}
	return worst
}

// runVirtualDrill runs a drill in the simulator and stores the run.
func runVirtualDrill(ctx context.Context, a *archive.Archive, f *drill.DrillFile, seed uint64, errOut io.Writer) (*drill.Report, string, error) {
	report, end := startProgress(errOut, f.Name)
	l, err := virtual.Run(ctx, f, virtual.Config{Seed: seed, Version: version, OnProgress: report})
	end()
	if err != nil {
		return nil, "", err
	}
	id, previous, err := a.NewRun(f.Name)
	if err != nil {
		return nil, "", err
	}
	l.Header.Previous = previous
	r, err := a.StoreRun(id, l, nil)
	return r, id, err
}

func (o *drillRunOptions) runOne(ctx context.Context, a *archive.Archive, f *drill.DrillFile, errOut io.Writer) (*drill.Report, string, error) {
	if o.virtual {
		return runVirtualDrill(ctx, a, f, o.seed, errOut)
	}
	return o.runLiveDrill(ctx, a, f, errOut)
}

// runLiveDrill predicts a drill, runs it on a fleet of processes, and stores both.
func (o *drillRunOptions) runLiveDrill(ctx context.Context, a *archive.Archive, f *drill.DrillFile, errOut io.Writer) (*drill.Report, string, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, "", fmt.Errorf("finding this program: %w", err)
	}
	var predicted *drill.EventLog
	predict := func(path time.Duration) error {
		fmt.Fprintf(errOut, "from a client to an engine and back: %s on the idle fleet\n", path.Round(100*time.Microsecond))
		if why := virtual.Unsupported(f); why != "" {
			fmt.Fprintf(errOut, "not predicted: %s\n", why)
			return nil
		}
		var err error
		predicted, err = virtual.Run(ctx, f, virtual.Config{Seed: o.seed, Version: version, Network: virtual.LocalNetwork(path)})
		return err
	}
	dir, err := os.MkdirTemp("", "drill-")
	if err != nil {
		return nil, "", fmt.Errorf("making a folder for the fleet: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := os.Setenv("XDG_RUNTIME_DIR", filepath.Join(dir, "r")); err != nil { // its sockets are apart from those of other fleets
		return nil, "", err
	}
	id, previous, err := a.NewRun(f.Name)
	if err != nil {
		return nil, "", err
	}
	fmt.Fprintf(errOut, "run %s: end it with `spillway drill abort %s --dir %s`\n", id, id, o.dir)
	l, err := live.Run(ctx, f, live.Config{
		Dir: filepath.Join(dir, "fleet"), Binary: binary, Seed: o.seed, Version: version, Net: o.net, StopReason: func() string { return a.StopReason(id) }, OnReady: predict, Progress: errOut,
	})
	if l == nil {
		return nil, "", err
	}
	if err != nil {
		fmt.Fprintln(errOut, "stopping the fleet:", err)
	}
	l.Header.Previous = previous
	r, err := a.StoreRun(id, l, predicted)
	return r, id, err
}

func (o *drillRunOptions) printResult(w io.Writer, r *drill.Report, id string, brief bool) error {
	if o.output == outputJSON {
		return r.WriteJSON(w)
	}
	if isStructured(o.output) {
		return printStructured(w, o.output, r)
	}
	v := r.Verdict
	fmt.Fprintf(w, "%s: %s: %s\n", id, v.Outcome, v.Why)
	if brief {
		return nil
	}
	for _, list := range [][]drill.Check{v.Hypothesis, v.Clearing, v.Machine} {
		for i := range list {
			fmt.Fprintf(w, "  %s\n", list[i].String())
		}
	}
	for i := range r.Predictions {
		fmt.Fprintf(w, "  %s\n", r.Predictions[i].String())
	}
	fmt.Fprintf(w, "harmed: %d of %d requests due from the first fault on\n", len(v.Harmed), v.Due)
	for i := range v.Ladder.Rungs {
		fmt.Fprintf(w, "  %s\n", v.Ladder.Rungs[i].String())
	}
	_, err := fmt.Fprintf(w, "report: %s/%s/report.html\nagain: spillway drill replay %s --dir %s\n", strings.TrimSuffix(o.dir, "/"), id, id, o.dir)
	return err
}

func newDrillReplayCommand() *cobra.Command {
	var dir, output string
	cmd := &cobra.Command{
		Use:   "replay ID",
		Short: "Run a stored run again in the simulator: the same file and seed",
		Long: `Run a stored run again in the simulator, with the file and the seed in its log. A virtual run of the same version gives the same log to the last
byte, and the command states whether it did.`,
		Example: "  spillway drill replay last",
		Args:    requireArgs("drill replay ID", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a := archive.Open(dir)
			e, err := a.FindRun(args[0])
			if err != nil {
				return err
			}
			before, _, _, err := a.ReadRun(e.ID)
			if err != nil {
				return err
			}
			f, err := drill.ParseFile(e.ID, []byte(before.Header.Drill))
			if err != nil {
				return err
			}
			if err := checkDrillAllowed(a); err != nil {
				return err
			}
			r, id, err := runVirtualDrill(cmd.Context(), a, f, before.Header.Seed, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			o := drillRunOptions{dir: dir, output: output}
			if err := o.printResult(cmd.OutOrStdout(), r, id, false); err != nil {
				return err
			}
			if !isStructured(output) && e.Way == drill.WayVirtual {
				again, _, _, err := a.ReadRun(id)
				if err != nil {
					return err
				}
				same := "the events equal those of " + e.ID
				if !slices.Equal(before.Events, again.Events) {
					same = "the events differ from those of " + e.ID + ", which version " + before.Header.Version + " recorded"
				}
				fmt.Fprintln(cmd.OutOrStdout(), same)
			}
			return outcomeError(r.Verdict.Outcome)
		},
	}
	addRunsFlag(cmd, &dir)
	addOutputFlag(cmd, &output)
	return cmd
}

// drillPlan is the preview of a drill.
type drillPlan struct {
	Drill      string   `json:"drill"`
	Title      string   `json:"title"`
	Hypothesis []string `json:"hypothesis"`
	Steps      []string `json:"steps"`
	// Regions of the fleet, and those that no step injures.
	Regions   []string `json:"regions"`
	Untouched []string `json:"untouched"`
	Stops     []string `json:"stops"`
	// Predicted is the judgement of the simulated run; nil if it cannot be simulated, for the reason in Unpredicted.
	Predicted   *drill.Verdict `json:"predicted,omitempty"`
	Unpredicted string         `json:"unpredicted,omitempty"`
	// Forbidden is the safety rule that forbids the run now.
	Forbidden string `json:"forbidden,omitempty"`
}

func newDrillPlanCommand() *cobra.Command {
	var file, dir, output string
	var seed uint64
	cmd := &cobra.Command{
		Use:   "plan [NAME | -f FILE]",
		Short: "Preview a drill: targets, what is left, what the simulator predicts, and what would stop it",
		Long: `Preview a drill without running it: its steps, the regions that no step injures, the stop rules, and what the simulator predicts for the same
load. The exit code is 3 if a safety rule forbids the run now.`,
		Example: "  spillway drill plan region-loss",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := readDrill("drill plan [NAME | -f FILE]", file, args)
			if err != nil {
				return err
			}
			p := previewDrill(cmd.Context(), f, seed)
			forbidden := checkDrillAllowed(archive.Open(dir))
			if forbidden != nil {
				p.Forbidden = forbidden.Error()
			}
			if isStructured(output) {
				err = printStructured(cmd.OutOrStdout(), output, p)
			} else {
				p.printPlan(cmd.OutOrStdout())
			}
			return errors.Join(err, forbidden)
		},
	}
	addRunsFlag(cmd, &dir)
	addOutputFlag(cmd, &output)
	cmd.Flags().StringVarP(&file, "file", "f", "", "file of the drill, instead of a name")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "seed of the prediction")
	return cmd
}

func previewDrill(ctx context.Context, f *drill.DrillFile, seed uint64) *drillPlan {
	p := &drillPlan{Drill: f.Name, Title: f.Title, Hypothesis: f.Hypothesis, Regions: f.RegionNames(), Untouched: f.UntouchedRegions(), Stops: f.StopTexts()}
	for i := range f.Steps {
		p.Steps = append(p.Steps, f.Steps[i].String())
	}
	l, err := predictDrill(ctx, f, seed)
	if err != nil {
		p.Unpredicted = err.Error()
		return p
	}
	p.Predicted = drill.Judge(f, l)
	return p
}

func (p *drillPlan) printPlan(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n", p.Drill, p.Title)
	for _, h := range p.Hypothesis {
		fmt.Fprintf(w, "  %s\n", h)
	}
	fmt.Fprintf(w, "steps:\n  %s\nregions: %s; no step injures: %s\n", strings.Join(p.Steps, "\n  "), strings.Join(p.Regions, ", "), dashIfEmpty(strings.Join(p.Untouched, ", ")))
	fmt.Fprintf(w, "stops when: %s\n", dashIfEmpty(strings.Join(p.Stops, "; ")))
	if p.Predicted == nil {
		fmt.Fprintf(w, "predicted: -; %s\n", p.Unpredicted)
		return
	}
	v := p.Predicted
	fmt.Fprintf(w, "predicted: %s (%s); harmed %d of %d requests due\n", v.Outcome, v.Why, len(v.Harmed), v.Due)
	for i := range v.Hypothesis {
		fmt.Fprintf(w, "  %s\n", v.Hypothesis[i].String())
	}
	for i := range v.Ladder.Rungs {
		fmt.Fprintf(w, "  %s\n", v.Ladder.Rungs[i].String())
	}
}
