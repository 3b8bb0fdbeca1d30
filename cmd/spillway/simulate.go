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
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/chaos/experiments"
	"github.com/spillway-lb/spillway/chaos/lab"
	"github.com/spillway-lb/spillway/internal/config/strict"
)

// simulation holds the flags of simulate.
type simulation struct {
	file, output, page, traces, keep string
	policies                         []string
	seed                             uint64
	seeds                            int
	small                            bool
}

func simulateCommand() *cobra.Command {
	s := simulation{}
	cmd := &cobra.Command{
		Use:   "simulate [ID | -f experiment.yaml]",
		Short: "Run an experiment in virtual time: policies against each other on modelled GPUs, and what must hold",
		Long: `Run an experiment in virtual time, with the code that decides in production: every policy with every seed, on modelled
GPUs, asked what public traces or generators ask. It prints what each policy came to, and whether each of the experiment's
lines holds. The same experiment with the same seed prints the same, on any machine. It ends with 1 when a line does not
hold, or when the experiment cannot run yet.

Experiments of the catalogue are run by id; ` + "`spillway simulate list`" + ` shows them, ` + "`spillway simulate show E5`" + ` prints one's
file, to be changed and run with -f.`,
		Example: "  spillway simulate E5 --small\n  spillway simulate -f experiment.yaml --seeds 3 --policies predictive,round_robin\n  spillway simulate E5 -o html > e5.html",
		GroupID: "operate",
		Args:    cobra.MaximumNArgs(1),
		PreRunE: func(*cobra.Command, []string) error { return s.check() },
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&s.file, "file", "f", "", "the experiment's file, instead of an id")
	f.Uint64Var(&s.seed, "seed", 1, "the first seed")
	f.IntVar(&s.seeds, "seeds", 0, "how many seeds (default: what the experiment says; publish with 10)")
	f.StringSliceVar(&s.policies, "policies", nil, "policies to run (default: what the experiment says); \"all\" for every one there is, \"baselines\" for the catalogue's")
	f.BoolVar(&s.small, "small", false, "the small form, which takes seconds")
	f.StringVar(&s.page, "html", "", "write the report as one web page into this file too")
	f.StringVar(&s.keep, "keep", "", "keep finished runs in this folder, so that an interrupted experiment goes on where it stopped, and a table of what is done so far")
	f.StringVarP(&s.output, "output", "o", "table", "table, json or html")
	tracesFlag(cmd, &s.traces)
	cmd.AddCommand(simulateListCommand(), simulateShowCommand(), simulateKeysCommand())
	return cmd
}

func tracesFlag(cmd *cobra.Command, traces *string) {
	def := os.Getenv("SPILLWAY_TRACES")
	if def == "" {
		def = "../shared/traces"
	}
	cmd.Flags().StringVar(traces, "traces", def, "folder of public traces (default $SPILLWAY_TRACES, then ../shared/traces)")
	cmd.Flags().Lookup("traces").DefValue = ""
}

func (s *simulation) check() error {
	switch s.output {
	case "table", "json", "html":
	default:
		return fmt.Errorf("unknown output %q: write -o table, -o json or -o html", s.output)
	}
	if s.seeds < 0 || s.seeds > 1000 {
		return fmt.Errorf("--seeds %d: use 1 to 1000", s.seeds)
	}
	return nil
}

// experiment reads the one that is asked for, as the flags change it.
func (s *simulation) experiment(args []string) (*lab.Experiment, error) {
	if (s.file != "") == (len(args) == 1) {
		return nil, errors.New("say which experiment: an id such as E5, or -f FILE\nhint: `spillway simulate list` shows the catalogue")
	}
	var e *lab.Experiment
	var err error
	if s.file != "" {
		e, err = readExperiment(s.file)
	} else {
		e, err = experiments.Find(args[0])
	}
	if err != nil {
		return nil, err
	}
	if s.small {
		e.Reduce()
	}
	if s.seeds > 0 {
		e.Seeds = s.seeds
	}
	if len(s.policies) > 0 {
		err = e.Only(s.policies)
	}
	return e, err
}

func readExperiment(path string) (*lab.Experiment, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the experiment: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, strict.MaxText+1))
	if err != nil {
		return nil, fmt.Errorf("reading the experiment: %w", err)
	}
	return lab.Decode(path, text)
}

func (s *simulation) run(ctx context.Context, out, errOut io.Writer, args []string) error {
	e, err := s.experiment(args)
	if err != nil {
		return err
	}
	o := lab.Options{Traces: s.traces, Small: s.small, Seed: s.seed}
	if err := s.keeping(e.ID, &o); err != nil {
		return err
	}
	var end func()
	o.Progress, end = showRun(errOut, e.ID)
	r, err := lab.Run(ctx, e, o)
	end()
	if err != nil {
		return err
	}
	if o.SoFar != nil {
		o.SoFar(r)
	}
	if s.page != "" {
		if err := writePage(s.page, r); err != nil {
			return err
		}
	}
	switch s.output {
	case "json":
		err = printJSON(out, r)
	case "html":
		err = r.Page(out)
	default:
		err = r.Print(out)
	}
	if err == nil && !r.Passed {
		err = errQuiet
	}
	return err
}

// keeping has runs kept in the folder that the flag names, and a table of what is done so far beside them.
func (s *simulation) keeping(id string, o *lab.Options) (err error) {
	if s.keep == "" {
		return nil
	}
	if o.Keep, err = lab.OpenKept(s.keep); err != nil {
		return err
	}
	path := filepath.Join(s.keep, id+".txt")
	o.SoFar = func(r *lab.Report) {
		var b bytes.Buffer
		if r.Print(&b) == nil { // a bytes.Buffer takes everything
			_ = os.WriteFile(path, b.Bytes(), 0o644) // the runs are what matters, and they are kept
		}
	}
	return nil
}

func writePage(path string, r *lab.Report) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return errors.Join(r.Page(f), f.Close())
}

func simulateListCommand() *cobra.Command {
	var output, traces string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Show the catalogue of experiments, and which of them can run",
		Example: "  spillway simulate list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows, err := listed(traces)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), rows)
			}
			table(cmd.OutOrStdout(), func(t io.Writer) {
				fmt.Fprintln(t, "ID\tASKS\tLINES\tRUNS\tTAKES\tSTATE")
				for _, r := range rows {
					fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\n", r.ID, r.Title, len(r.Lines), orNone(r.Runs > 0, r.Runs), orNone(r.Takes > 0, computing(r.Takes)), r.State)
				}
			})
			var all float64
			for _, r := range rows {
				all += r.Takes
			}
			fmt.Fprintf(cmd.OutOrStdout(), "TAKES is what the full form computed on one core when it was measured last, %s in all; two runs are made at a time.\n", computing(all))
			return nil
		},
	}
	outputFlag(cmd, &output)
	tracesFlag(cmd, &traces)
	return cmd
}

// listedExperiment is one of the catalogue.
type listedExperiment struct {
	ID       string   `json:"id"`
	Title    string   `json:"title"`
	Question string   `json:"question"`
	Lines    []string `json:"lines"`
	Needs    []string `json:"needs,omitempty"`
	State    string   `json:"state"`
	Runs     int      `json:"runs,omitempty"`    // of the simulator, about, in the full form
	Takes    float64  `json:"takes_s,omitempty"` // about how long those compute on one core
}

// computing is so many seconds as people write them.
func computing(seconds float64) string {
	d := time.Duration(seconds) * time.Second
	switch {
	case d < time.Minute:
		return d.String()
	case d < time.Hour:
		return fmt.Sprintf("%.0fm", d.Minutes())
	}
	return fmt.Sprintf("%.1fh", d.Hours())
}

func orNone(ok bool, v any) string {
	if !ok {
		return "-"
	}
	return fmt.Sprint(v)
}

func listed(traces string) (out []listedExperiment, err error) {
	all, err := experiments.All()
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		l := listedExperiment{ID: e.ID, Title: e.Title, Question: e.Question, Needs: e.Lacks(traces), State: "ready", Runs: e.Runs(), Takes: e.Takes.Seconds()}
		for _, line := range e.Pass {
			l.Lines = append(l.Lines, line.Line)
		}
		switch {
		case len(l.Needs) > 0:
			l.State = "cannot run yet: needs " + strings.Join(l.Needs, "; ")
		case e.Command != "":
			l.State = "run by " + e.Command
		}
		out = append(out, l)
	}
	return out, nil
}

func simulateShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show ID",
		Short:   "Print an experiment's file, to be changed and run with -f",
		Example: "  spillway simulate show E5 > mine.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := experiments.Text(args[0])
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		},
	}
}

func simulateKeysCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "keys",
		Short:   "Print every key of an experiment's file: its type, its default and what it means",
		Example: "  spillway simulate keys",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return lab.Describe(cmd.OutOrStdout()) },
	}
}
