package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spillway-lb/spillway/chaos/experiment"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/config/strict"
)

// simulateOptions holds the flags of simulate.
type simulateOptions struct {
	file, output, htmlFile, tracesDir, runStoreDir string
	policies                                       []string
	firstSeed                                      uint64
	seedCount                                      int
	smallForm                                      bool
}

func newSimulateCommand() *cobra.Command {
	s := simulateOptions{}
	cmd := &cobra.Command{
		Use:   "simulate [ID | -f experiment.yaml]",
		Short: "Run an experiment in virtual time: compare policies on simulated GPUs and check assertions",
		Long: `Run an experiment in virtual time, with the decision code of production: every policy with every seed, on simulated GPUs,
with requests from public traces or generators. It prints the figures of each policy and the result of each assertion. The
same experiment with the same seed prints the same result on any machine. The exit code is 1 if an assertion does not hold or
the experiment cannot run.

Experiments of the catalogue are run by id, others with -f. ` + "`spillway simulate list`" + ` lists them; ` + "`spillway simulate show E5`" + ` prints the file of
one, to change and run with -f.`,
		Example: "  spillway simulate E5 --small\n  spillway simulate -f experiment.yaml --seeds 3 --policies predictive,round_robin\n  spillway simulate E5 -o html > e5.html",
		GroupID: "operate",
		Args:    cobra.MaximumNArgs(1),
		PreRunE: func(*cobra.Command, []string) error { return s.checkFlags() },
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.runExperiment(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&s.file, "file", "f", "", "file of the experiment, instead of an id")
	f.Uint64Var(&s.firstSeed, "seed", 1, "first seed")
	f.IntVar(&s.seedCount, "seeds", 0, "number of seeds (default: that of the experiment; use 10 for published figures)")
	f.StringSliceVar(&s.policies, "policies", nil, "policies to run (default: those of the experiment); \"all\" for every policy, \"baselines\" for the baselines of the catalogue")
	f.BoolVar(&s.smallForm, "small", false, "run the small form, which takes seconds")
	f.StringVar(&s.htmlFile, "html", "", "also write the report as a web page to this file")
	f.StringVar(&s.runStoreDir, "keep", "", "store finished runs and a table of the results so far in this folder, so that an interrupted experiment can be continued")
	f.StringVarP(&s.output, "output", "o", "table", "table, json or html")
	addTracesFlag(cmd, &s.tracesDir)
	cmd.AddCommand(newSimulateListCommand(), newSimulateShowCommand(), newSimulateKeysCommand())
	return cmd
}

func addTracesFlag(cmd *cobra.Command, traces *string) {
	cmd.Flags().StringVar(traces, "traces", os.Getenv(load.TracesVariable), "folder with the public traces, which \"spillway traces\" lists (default $"+load.TracesVariable+")")
	cmd.Flags().Lookup("traces").DefValue = ""
}

func (s *simulateOptions) checkFlags() error {
	switch s.output {
	case "table", "json", "html":
	default:
		return fmt.Errorf("unknown output %q: write -o table, -o json or -o html", s.output)
	}
	if s.seedCount < 0 || s.seedCount > 1000 {
		return fmt.Errorf("--seeds %d: use 1 to 1000", s.seedCount)
	}
	return nil
}

// loadExperiment reads the requested experiment and applies the flags.
func (s *simulateOptions) loadExperiment(errOut io.Writer, args []string) (*experiment.Experiment, error) {
	if (s.file != "") == (len(args) == 1) {
		return nil, newUsageError("simulate ID | -f FILE", "`spillway simulate list` lists the experiments of the catalogue, such as E5")
	}
	var e *experiment.Experiment
	var err error
	if s.file != "" {
		e, err = readExperiment(s.file)
	} else {
		e, err = experiment.FindExperiment(args[0])
	}
	if err != nil {
		return nil, err
	}
	for _, w := range e.Warnings {
		fmt.Fprintf(errOut, "warning: %s\n", w)
	}
	if s.smallForm {
		e.UseSmallForm()
	}
	if s.seedCount > 0 {
		e.Seeds = s.seedCount
	}
	if len(s.policies) > 0 {
		err = e.UsePolicies(s.policies)
	}
	return e, err
}

func readExperiment(path string) (*experiment.Experiment, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the experiment: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, strict.MaxTextBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the experiment: %w", err)
	}
	return experiment.DecodeExperiment(path, text)
}

func (s *simulateOptions) runExperiment(ctx context.Context, out, errOut io.Writer, args []string) error {
	e, err := s.loadExperiment(errOut, args)
	if err != nil {
		return err
	}
	o := experiment.Options{Traces: s.tracesDir, Small: s.smallForm, Seed: s.firstSeed}
	if err := s.enableRunStore(e.ID, &o); err != nil {
		return err
	}
	var end func()
	o.OnProgress, end = startProgress(errOut, e.ID)
	r, err := experiment.RunExperiment(ctx, e, o)
	end()
	if err != nil {
		return err
	}
	if o.OnPartialReport != nil {
		o.OnPartialReport(r)
	}
	if s.htmlFile != "" {
		if err := writeHTMLReport(s.htmlFile, r); err != nil {
			return err
		}
	}
	switch s.output {
	case "json":
		err = printJSON(out, r)
	case "html":
		err = r.WritePage(out)
	default:
		err = r.WriteTables(out)
	}
	if err == nil && !r.Passed {
		err = errAlreadyReported
	}
	return err
}

// enableRunStore stores runs in the folder of --keep, together with a table of the results so far.
func (s *simulateOptions) enableRunStore(id string, o *experiment.Options) (err error) {
	if s.runStoreDir == "" {
		return nil
	}
	if o.Cache, err = experiment.OpenRunCache(s.runStoreDir); err != nil {
		return err
	}
	path := filepath.Join(s.runStoreDir, id+".txt")
	o.OnPartialReport = func(r *experiment.Report) {
		var b bytes.Buffer
		if r.WriteTables(&b) == nil { // writes to a bytes.Buffer do not fail
			_ = os.WriteFile(path, b.Bytes(), 0o644) // the table can be rebuilt from the stored runs
		}
	}
	return nil
}

func writeHTMLReport(path string, r *experiment.Report) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return errors.Join(r.WritePage(f), f.Close())
}

func newSimulateListCommand() *cobra.Command {
	var output, traces string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the experiments of the catalogue and whether each can run",
		Example: "  spillway simulate list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows, err := listExperiments(traces)
			if err != nil {
				return err
			}
			if isStructured(output) {
				return printStructured(cmd.OutOrStdout(), output, rows)
			}
			writeTable(cmd.OutOrStdout(), func(t io.Writer) {
				fmt.Fprintln(t, "ID\tTITLE\tASSERTIONS\tRUNS\tCPU TIME\tSTATE")
				for _, r := range rows {
					fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\n", r.ID, r.Title, len(r.Lines), formatOrDash(r.Runs > 0, r.Runs), formatOrDash(r.Takes > 0, formatComputeTime(r.Takes)), r.State)
				}
			})
			var all float64
			for _, r := range rows {
				all += r.Takes
			}
			fmt.Fprintf(cmd.OutOrStdout(), "CPU TIME is the last measured time of the full form on one core, %s in total; two runs execute at a time.\n", formatComputeTime(all))
			return nil
		},
	}
	addOutputFlag(cmd, &output)
	addTracesFlag(cmd, &traces)
	return cmd
}

// listedExperiment is one experiment of the catalogue.
type listedExperiment struct {
	ID       string   `json:"id"`
	Title    string   `json:"title"`
	Question string   `json:"question"`
	Lines    []string `json:"lines"`
	Needs    []string `json:"needs,omitempty"`
	State    string   `json:"state"`
	Runs     int      `json:"runs,omitempty"`    // estimated runs of the simulator in the full form
	Takes    float64  `json:"takes_s,omitempty"` // their CPU time on one core, in seconds
}

// formatComputeTime formats seconds with a single unit.
func formatComputeTime(seconds float64) string {
	d := time.Duration(seconds) * time.Second
	switch {
	case d < time.Minute:
		return d.String()
	case d < time.Hour:
		return fmt.Sprintf("%.0fm", d.Minutes())
	}
	return fmt.Sprintf("%.1fh", d.Hours())
}

func formatOrDash(ok bool, v any) string {
	if !ok {
		return "-"
	}
	return fmt.Sprint(v)
}

func listExperiments(traces string) (out []listedExperiment, err error) {
	all, err := experiment.LoadCatalogue()
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		l := listedExperiment{ID: e.ID, Title: e.Title, Question: e.Question, Needs: e.MissingNeeds(traces), State: "ready", Runs: e.EstimateRuns(), Takes: e.Takes.Seconds()}
		for _, line := range e.Pass {
			l.Lines = append(l.Lines, line.Line)
		}
		switch {
		case len(l.Needs) > 0:
			l.State = "cannot run: needs " + strings.Join(l.Needs, "; ")
		case e.Command != "":
			l.State = "run by " + e.Command
		}
		out = append(out, l)
	}
	return out, nil
}

func newSimulateShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show ID",
		Short:   "Print the file of an experiment, to change and run with -f",
		Example: "  spillway simulate show E5 > mine.yaml",
		Args:    requireArgs("simulate show ID", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := experiment.ReadExperimentText(args[0])
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		},
	}
}

func newSimulateKeysCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "keys",
		Short:   "Describe every key of an experiment file: type, default and meaning",
		Example: "  spillway simulate keys",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return experiment.DescribeKeys(cmd.OutOrStdout()) },
	}
}

// progressBarWidth is the width of a progress bar, in characters.
const progressBarWidth = 30

// runProgress prints the progress of a long run.
type runProgress struct {
	mu          sync.Mutex
	w           io.Writer
	label       string
	showBar     bool
	startedAt   time.Time
	lastShownAt time.Time
	lastQuarter int
}

// startProgress returns two functions: report updates the progress (0..1), end clears it. On a terminal it prints a bar with
// the remaining time, elsewhere a line at each quarter.
func startProgress(w io.Writer, what string) (report func(done float64), end func()) {
	p := &runProgress{w: w, label: what, showBar: isTerminal(w), startedAt: time.Now()}
	return p.reportProgress, p.clearBar
}

func (p *runProgress) reportProgress(done float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.showBar {
		if now.Sub(p.lastShownAt) >= 100*time.Millisecond {
			p.lastShownAt = now
			fmt.Fprintf(p.w, "\r\033[K%s", formatProgressBar(p.label, done, now.Sub(p.startedAt)))
		}
		return
	}
	// Not a terminal, so probably a log: at most three lines, and none for a short run.
	if q := int(done * 4); q > p.lastQuarter && q < 4 && now.Sub(p.startedAt) > 5*time.Second {
		p.lastQuarter = q
		fmt.Fprintf(p.w, "%s: %d %%, about %s left\n", p.label, q*25, estimateTimeLeft(done, now.Sub(p.startedAt)))
	}
}

func (p *runProgress) clearBar() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.showBar && !p.lastShownAt.IsZero() {
		fmt.Fprint(p.w, "\r\033[K")
	}
}

// formatProgressBar returns a bar with the completed share and the remaining time.
func formatProgressBar(what string, done float64, elapsed time.Duration) string {
	full := int(done * progressBarWidth)
	return fmt.Sprintf("%s [%s%s] %3.0f %%, %s left", what, strings.Repeat("=", full), strings.Repeat(" ", progressBarWidth-full), done*100, estimateTimeLeft(done, elapsed))
}

// estimateTimeLeft extrapolates the remaining time linearly: elapsed * (1-done) / done. It returns "?" in the first 1 % or
// 200 ms.
func estimateTimeLeft(done float64, elapsed time.Duration) string {
	if done < 0.01 || elapsed < 200*time.Millisecond {
		return "?"
	}
	return time.Duration(float64(elapsed) * (1 - done) / done).Round(time.Second).String()
}
