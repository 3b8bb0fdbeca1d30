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

func applyCommand() *cobra.Command {
	var (
		to     target
		file   string
		dryRun bool
		window time.Duration
		req    admin.ApplyRequest
	)
	cmd := &cobra.Command{
		Use:   "apply -f spec.yaml",
		Short: "Replace the declared state: services, regions, models, tenants, policy",
		Long: `Replace the declared state: services, regions, models, tenants, policy.

The file is checked here first, so a mistake is shown with its line before anything is sent. With --dry-run the nodes
replay the demand that they have seen in the last 15 minutes through both specs, and answer what would change, which
clients would move and what the median of RTT and wait would become; they change nothing.

With --stage the spec is put on trial in some regions first: their gateways and zones serve by it, and everything else,
also how clients are steered and redirected everywhere, goes on by the spec in force. With --guard and no --stage it is in
force everywhere at once, and on trial. After --for without a breach of the guard it is promoted; on a breach it is rolled
back, and the audit says what was measured.

A guard bounds error_rate (5xx and broken answers), refused_rate (4xx) and ttft_p50, _p90, _p95, _p99, by an amount or by
a factor: 1.5x is 1.5 times the worse of the same region in the ten minutes before and the other regions now. A figure
counts from requests>=50 on, in all and for each model. Without that many nothing is promoted and nothing rolled back;
time in which a region on trial is not heard does not count.`,
		Example: "  spillway apply -f spec.yaml --dry-run\n  spillway apply -f spec.yaml\n" +
			"  spillway apply -f spec.yaml --stage frankfurt --for 10m --guard 'error_rate<2%,ttft_p99<1.5x' --reason CHG-7",
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := readFile(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			if _, _, err := readSpec(file, text); err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), err)
				fmt.Fprintln(cmd.ErrOrStderr(), "spillway: nothing was applied")
				return errQuiet
			}
			req.Name, req.Text, req.DryRun = file, string(text), dryRun
			if req.Guard != "" || len(req.Stage) > 0 {
				req.ForMS = window.Milliseconds()
			} else if cmd.Flags().Changed("for") {
				return errors.New("--for is the length of a trial\nhint: add --stage REGION or --guard 'error_rate<2%'")
			}
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.Apply(ctx, req)
				if err != nil {
					return err
				}
				printApply(cmd.OutOrStdout(), a)
				return nil
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "the spec; - reads standard input")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change and change nothing")
	cmd.Flags().Uint64Var(&req.BasedOn, "based-on", 0, "refuse unless this version is in force (default: whatever is)")
	cmd.Flags().StringVar(&req.Reason, "reason", "", "why, for the audit")
	cmd.Flags().StringSliceVar(&req.Stage, "stage", nil, "try it in these regions first")
	cmd.Flags().DurationVar(&window, "for", 10*time.Minute, "how long a trial lasts; 0: until promote or rollback")
	cmd.Flags().StringVar(&req.Guard, "guard", "", "what ends a trial with a rollback, such as error_rate<2%,ttft_p99<1.5x")
	cmd.Flags().BoolVar(&req.Replace, "replace", false, "take the place of what is on trial")
	must(cmd.MarkFlagRequired("file"))
	return cmd
}

func readFile(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(stdin, 2<<20))
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading the spec: %w", err)
	}
	return b, nil
}

func printApply(w io.Writer, a *admin.ApplyAnswer) {
	verb := fmt.Sprintf("applied: spec v%d is in force", a.Version)
	if a.Stage != nil && !a.DryRun && !a.Stage.Everywhere {
		verb = fmt.Sprintf("staged: spec v%d stays in force elsewhere", a.Version)
	}
	if a.DryRun {
		verb = fmt.Sprintf("dry run: spec v%d stays in force", a.Version)
	}
	if len(a.Changes) == 0 {
		fmt.Fprintf(w, "%s, nothing differs\n", verb)
		return
	}
	fmt.Fprintln(w, verb)
	printTrial(w, a.Stage, a.DryRun)
	table(w, func(t io.Writer) {
		fmt.Fprintln(t, "\nCHANGE\tFROM\tTO")
		for _, c := range a.Changes {
			fmt.Fprintf(t, "%s\t%s\t%s\n", c.Path, orDash(c.From), orDash(c.To))
		}
	})
	printReplay(w, a.Replay)
	if len(a.Moves) > 0 {
		table(w, func(t io.Writer) {
			fmt.Fprintln(t, "\nCLIENTS OF\tSERVICE\tFROM\tTO\tSHARE OF SERVICE")
			for _, m := range a.Moves {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", m.Cell, m.Service, orDash(m.From), orDash(m.To), moveShare(&m))
			}
		})
	}
	if len(a.Moves) == 0 {
		fmt.Fprintln(w, "\nno client moves")
	}
}

func moveShare(m *admin.Move) string {
	if m.Quiet {
		return percent(m.Share) + " of its cells (no demand seen)"
	}
	return percent(m.Share)
}

// printReplay sums up what the demand of the last minutes would have met.
func printReplay(w io.Writer, r *admin.Replay) {
	if r == nil {
		return
	}
	fmt.Fprintf(w, "\nreplayed %s of observed demand, on the capacity and with the waits of now\n", minutes(r.Minutes))
	table(w, func(t io.Writer) {
		fmt.Fprintln(t, "SERVICE\tDEMAND MOVED\tCELLS MOVED\tP50 RTT + WAIT\tNO DEMAND SEEN")
		for _, s := range r.Services {
			demand, cells, p50 := "-", "-", "-"
			if s.Cells > 0 {
				demand, cells = percent(s.Moved), fmt.Sprintf("%d of %d", s.CellsMoved, s.Cells)
			}
			if s.P50Before > 0 || s.P50After > 0 {
				p50 = arrow(cost(s.P50Before), cost(s.P50After))
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d cells, %d would move\n", s.Service, demand, cells, p50, s.QuietCells, s.QuietCellsMoved)
		}
	})
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
}

func minutes(n int) string {
	switch n {
	case 0:
		return "nothing"
	case 1:
		return "1 minute"
	}
	return fmt.Sprintf("%d minutes", n)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
