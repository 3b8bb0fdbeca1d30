package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

func newApplyCommand() *cobra.Command {
	var (
		to     adminTarget
		file   string
		dryRun bool
		window time.Duration
		req    admin.ApplyRequest
	)
	cmd := &cobra.Command{
		Use:   "apply -f spec.yaml",
		Short: "Replace the spec: services, regions, models, tenants, policy",
		Long: `Replace the spec: services, regions, models, tenants, policy.

The file is checked locally first; a mistake is shown with its line and nothing is sent. With --dry-run the global node
replays the demand of the last 15 minutes through both specs and shows what would change, which clients would move and
how the median of RTT plus wait would change. Nothing is applied.

With --stage the spec is rolled out in the named regions first: their gateways and zones use it. All other regions, and
the steering and redirects of every region, keep using the spec in force. With --guard and without --stage the staged spec
is in force everywhere at once. It is promoted after --for if the guard held, and rolled back when the guard is violated;
the audit log records the measurements.

A guard limits error_rate (5xx and interrupted responses), refused_rate (4xx) and ttft_p50, _p90, _p95, _p99. A limit is a
value, or a factor such as 1.5x: 1.5 times the worse of the same region in the ten minutes before and the other regions
now. A measurement counts from requests>=50 on, in total and for each model. With fewer requests the spec is neither
promoted nor rolled back. Time during which a staged region does not report is not counted.`,
		Example: "  spillway apply -f spec.yaml --dry-run\n  spillway apply -f spec.yaml\n" +
			"  spillway apply -f spec.yaml --stage frankfurt --for 10m --guard 'error_rate<2%,ttft_p99<1.5x' --reason CHG-7",
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := readSpecFile(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			if _, _, err := decodeSpec(file, text); err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), err)
				fmt.Fprintln(cmd.ErrOrStderr(), "spillway: nothing was applied")
				return errAlreadyReported
			}
			req.Name, req.Text, req.DryRun = file, string(text), dryRun
			if req.Guard != "" || len(req.Stage) > 0 {
				req.ForMS = window.Milliseconds()
			} else if cmd.Flags().Changed("for") {
				return errors.New("--for sets how long a spec is staged, and this one is not staged\nhint: add --stage REGION or --guard 'error_rate<2%'")
			}
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.ApplySpec(ctx, req)
				if err != nil {
					return err
				}
				printApplyAnswer(cmd.OutOrStdout(), a)
				return nil
			})
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "the spec; - reads standard input")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change without applying it")
	cmd.Flags().Uint64Var(&req.BasedOn, "based-on", 0, "refuse unless this version of the spec is in force (default: any version)")
	cmd.Flags().StringVar(&req.Reason, "reason", "", "reason, for the audit log")
	cmd.Flags().StringSliceVar(&req.Stage, "stage", nil, "stage the spec in these regions first")
	cmd.Flags().DurationVar(&window, "for", 10*time.Minute, "how long the spec is staged; 0: until promote or rollback")
	cmd.Flags().StringVar(&req.Guard, "guard", "", "limits that roll the staged spec back when violated, such as error_rate<2%,ttft_p99<1.5x")
	cmd.Flags().BoolVar(&req.Replace, "replace", false, "replace the staged spec, if there is one")
	panicOnError(cmd.MarkFlagRequired("file"))
	return cmd
}

func readSpecFile(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(stdin, 2<<20))
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading the spec: %w", err)
	}
	return b, nil
}

func printApplyAnswer(w io.Writer, a *admin.ApplyAnswer) {
	verb := fmt.Sprintf("applied: spec v%d is in force", a.Version)
	if a.Stage != nil && !a.DryRun && !a.Stage.Everywhere {
		verb = fmt.Sprintf("staged: spec v%d stays in force elsewhere", a.Version)
	}
	if a.DryRun {
		verb = fmt.Sprintf("dry run: spec v%d stays in force", a.Version)
	}
	if len(a.Changes) == 0 {
		fmt.Fprintf(w, "%s, no changes\n", verb)
		return
	}
	fmt.Fprintln(w, verb)
	printStagedSpec(w, a.Stage, a.DryRun)
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "\nCHANGE\tFROM\tTO")
		for _, c := range a.Changes {
			fmt.Fprintf(t, "%s\t%s\t%s\n", c.Path, dashIfEmpty(c.From), dashIfEmpty(c.To))
		}
	})
	printReplay(w, a.Replay)
	if len(a.Moves) > 0 {
		writeTable(w, func(t io.Writer) {
			fmt.Fprintln(t, "\nCLIENT AREA\tSERVICE\tFROM\tTO\tSHARE OF SERVICE")
			for _, m := range a.Moves {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", m.Cell, m.Service, dashIfEmpty(m.From), dashIfEmpty(m.To), formatMoveShare(&m))
			}
		})
	}
	if len(a.Moves) == 0 {
		fmt.Fprintln(w, "\nno clients move")
	}
}

func formatMoveShare(m *admin.Move) string {
	if m.Quiet {
		return formatPercent(m.Share) + " of its client areas (no demand measured)"
	}
	return formatPercent(m.Share)
}

// printReplay prints, by service, how the observed demand would be distributed by the new spec.
func printReplay(w io.Writer, r *admin.Replay) {
	if r == nil {
		return
	}
	fmt.Fprintf(w, "\nreplayed %s of observed demand against the current capacity and waits\n", formatMinutes(r.Minutes))
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "SERVICE\tDEMAND MOVED\tCLIENT AREAS MOVED\tP50 RTT + WAIT\tWITHOUT DEMAND")
		for _, s := range r.Services {
			demand, cells, p50 := "-", "-", "-"
			if s.Cells > 0 {
				demand, cells = formatPercent(s.Moved), fmt.Sprintf("%d of %d", s.CellsMoved, s.Cells)
			}
			if s.P50Before > 0 || s.P50After > 0 {
				p50 = formatChange(formatCost(s.P50Before), formatCost(s.P50After))
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d areas, %d would move\n", s.Service, demand, cells, p50, s.QuietCells, s.QuietCellsMoved)
		}
	})
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
}

func formatMinutes(n int) string {
	switch n {
	case 0:
		return "0 minutes"
	case 1:
		return "1 minute"
	}
	return fmt.Sprintf("%d minutes", n)
}

func dashIfEmpty(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
