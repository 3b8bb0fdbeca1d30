package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

func newPlanCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan show|diff|history",
		Short: "Show the steering plan in force, the difference of two plans, or the latest plans",
		Long: `Show the steering plan in force, the difference of two plans, or the latest plans. A plan assigns clients to regions; DNS
answers and redirects follow it.

Raft stores only the newest plan. Older plans are those that the queried global node received since it started, at most
64.`,
		GroupID: "operate",
		Args:    rejectUnknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPlanShowCommand(), newPlanDiffCommand(), newPlanHistoryCommand())
	return cmd
}

func newPlanShowCommand() *cobra.Command {
	var (
		to     adminTarget
		output string
	)
	cmd := &cobra.Command{
		Use:   "show [EPOCH]",
		Short: "Show a plan: the cost of each region, the client areas moved from their nearest region, author, time and reason",
		Long: `Show a plan: the cost of each region, the client areas moved from their nearest region, author, time and reason. Columns:
  WAIT           predicted wait of a request in the region
  OVERLOAD COST  added to the RTT of every client of the region so that load stays within capacity (the shadow price)
  UNPLACED       share of clients without a known location that the region gets
  AREAS          client areas assigned to the region; fractions are shared areas
  RAMP           share of its traffic that a recovered region gets while it is ramped up`,
		Example: "  spillway plan show\n  spillway plan show 17 -o json",
		Args:    requireArgRange("plan show [EPOCH]", 0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			epochs, err := parseEpochs(args)
			if err != nil {
				return err
			}
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.GetPlan(ctx, epochs[0])
				return printAnswer(cmd.OutOrStdout(), output, a, err, printPlan)
			})
		},
	}
	to.addFlags(cmd)
	addOutputFlag(cmd, &output)
	return cmd
}

func newPlanDiffCommand() *cobra.Command {
	var (
		to     adminTarget
		output string
	)
	cmd := &cobra.Command{
		Use:   "diff [FROM [TO]]",
		Short: "Show which clients moved between two plans (default: the newest and the one before it)",
		Long: `Show which clients moved between two plans (default: the newest and the one before it).

Both plans are evaluated with the current spec and client map, each without the regions that were drained or unreachable
when it was made.`,
		Example: "  spillway plan diff\n  spillway plan diff 15\n  spillway plan diff 15 17",
		Args:    requireArgRange("plan diff [FROM [TO]]", 0, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			epochs, err := parseEpochs(args)
			if err != nil {
				return err
			}
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.GetPlanDiff(ctx, epochs[0], epochs[1])
				return printAnswer(cmd.OutOrStdout(), output, a, err, printPlanDiff)
			})
		},
	}
	to.addFlags(cmd)
	addOutputFlag(cmd, &output)
	return cmd
}

func newPlanHistoryCommand() *cobra.Command {
	var (
		to     adminTarget
		output string
		limit  uint64
	)
	cmd := &cobra.Command{
		Use:     "history",
		Short:   "List the latest plans that a node received since it started: time, reason, cost, size and client areas moved",
		Example: "  spillway plan history\n  spillway plan history --limit 5 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.GetPlanHistory(ctx, limit)
				return printAnswer(cmd.OutOrStdout(), output, a, err, printPlanHistory)
			})
		},
	}
	to.addFlags(cmd)
	cmd.Flags().Uint64Var(&limit, "limit", 20, "maximum number of plans; 0: all that the node stores")
	addOutputFlag(cmd, &output)
	return cmd
}

// parseEpochs parses up to two epochs. A missing one is 0.
func parseEpochs(args []string) (out [2]uint64, err error) {
	for i, a := range args {
		if out[i], err = strconv.ParseUint(a, 10, 64); err != nil || out[i] == 0 {
			return out, fmt.Errorf("%q is not a plan's epoch: `spillway plan history` lists them", a)
		}
	}
	return out, nil
}

// printAnswer prints an answer as JSON, or with print.
func printAnswer[A any](w io.Writer, output string, a *A, err error, print func(io.Writer, *A)) error {
	if err != nil {
		return err
	}
	if isStructured(output) {
		return printStructured(w, output, a)
	}
	print(w, a)
	return nil
}

func printPlan(w io.Writer, a *admin.PlanAnswer) {
	state := "no longer in force"
	if a.InForce {
		state = "in force"
	}
	fmt.Fprintf(w, "plan %d: %s at %s for %s, %s\n", a.Epoch, state, a.Node, formatAge(a.AgeMS), formatPlanOrigin(&a.PlanOf))
	fmt.Fprintf(w, "spec v%d, term %d, %d bytes, cost %s (before %s)\n", a.SpecVersion, a.Term, a.Bytes, formatCost(a.CostSeconds), formatCost(a.CostBeforeSeconds))
	if len(a.Without) > 0 {
		fmt.Fprintf(w, "excluded regions: %s\n", strings.Join(a.Without, ", "))
	}
	for _, n := range a.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	for i := range a.Services {
		printPlanService(w, &a.Services[i])
	}
}

func printPlanService(w io.Writer, s *admin.PlanService) {
	fmt.Fprintf(w, "\n%s (%s): %d of %d client areas moved from their nearest region\n", s.Name, s.Mode, len(s.Rows), s.Cells)
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "  REGION\tWAIT\tOVERLOAD COST\tUNPLACED\tAREAS\tRAMP")
		for _, r := range s.Regions {
			ramp := "-"
			if r.Ramp > 0 {
				ramp = formatPercent(r.Ramp)
			}
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%.1f\t%s\n", r.Name, formatSeconds(r.Wait), formatCost(r.Price), formatPercent(r.Spread), r.Cells, ramp)
		}
	})
	if len(s.Rows) == 0 {
		return
	}
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "  CLIENT AREA\tSHARES\tPINNED NETWORKS")
		for _, r := range s.Rows {
			fmt.Fprintf(t, "  %s\t%s\t%s\n", r.Cell, formatShares(r.Shares), formatPins(r.Pinned))
		}
	})
}

// formatPins lists up to four heavy-hitter networks with the regions that they are pinned to.
func formatPins(pins []admin.PlanPin) string {
	const maxListed = 4
	var out []string
	for _, p := range pins[:min(len(pins), maxListed)] {
		out = append(out, p.Network+" "+p.Region)
	}
	if more := len(pins) - maxListed; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return cmp.Or(strings.Join(out, ", "), "-")
}

func printPlanDiff(w io.Writer, a *admin.PlanDiffAnswer) {
	fmt.Fprintf(w, "from plan %d (%s) to plan %d (%s)\n", a.From.Epoch, formatPlanOrigin(&a.From), a.To.Epoch, formatPlanOrigin(&a.To))
	if len(a.Without) > 0 {
		fmt.Fprintf(w, "regions excluded since: %s\n", strings.Join(a.Without, ", "))
	}
	if len(a.With) > 0 {
		fmt.Fprintf(w, "regions included again: %s\n", strings.Join(a.With, ", "))
	}
	if len(a.Services) == 0 {
		fmt.Fprintln(w, "no differences")
	}
	for i := range a.Services {
		printServiceDiff(w, &a.Services[i])
	}
}

func printServiceDiff(w io.Writer, s *admin.PlanServiceDiff) {
	fmt.Fprintf(w, "\n%s: %d client areas moved\n", s.Name, s.Moved)
	if len(s.Regions) > 0 {
		writeTable(w, func(t io.Writer) {
			fmt.Fprintln(t, "  REGION\tWAIT\tOVERLOAD COST\tUNPLACED\tAREAS")
			for _, r := range s.Regions {
				fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", r.From.Name, formatChange(formatSeconds(r.From.Wait), formatSeconds(r.To.Wait)), formatChange(formatCost(r.From.Price), formatCost(r.To.Price)),
					formatChange(formatPercent(r.From.Spread), formatPercent(r.To.Spread)), formatChange(fmt.Sprintf("%.1f", r.From.Cells), fmt.Sprintf("%.1f", r.To.Cells)))
			}
		})
	}
	if len(s.Cells) > 0 {
		writeTable(w, func(t io.Writer) {
			fmt.Fprintln(t, "  CLIENT AREA\tMOVED\tFROM\tTO")
			for _, c := range s.Cells {
				fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", c.Cell, formatPercent(c.Moved), formatShares(c.From), formatShares(c.To))
			}
		})
	}
}

func printPlanHistory(w io.Writer, a *admin.PlanHistoryAnswer) {
	if len(a.Plans) == 0 {
		fmt.Fprintf(w, "%s received no plan since it started\n", a.Node)
		return
	}
	fmt.Fprintf(w, "plans received by %s since it started; it stores the last %d\n", a.Node, a.Kept)
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "EPOCH\tTIME\tREASON\tCOST\tBEFORE\tBYTES\tSPEC\tAREAS MOVED\tSHARE\tBY")
		for i := range a.Plans {
			p := &a.Plans[i]
			cells, share := strconv.Itoa(p.Cells), formatPercent(p.Share)
			if p.First {
				cells, share = "-", "-"
			}
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%d\tv%d\t%s\t%s\t%s\n", p.Epoch, formatPlanTime(&p.PlanOf), dashIfEmpty(p.Reason), formatCost(p.CostSeconds),
				formatCost(p.CostBeforeSeconds), p.Bytes, p.SpecVersion, cells, share, dashIfEmpty(p.By))
		}
	})
}

// formatPlanOrigin returns the author, time and reason of a plan.
func formatPlanOrigin(p *admin.PlanOf) string {
	if p.By == "" {
		return "made by a leader of an earlier release"
	}
	return fmt.Sprintf("made by %s at %s (%s)", p.By, formatPlanTime(p), p.Reason)
}

func formatPlanTime(p *admin.PlanOf) string {
	if p.MadeAt.IsZero() {
		return formatAge(p.AgeMS) + " ago"
	}
	return p.MadeAt.Local().Format(time.TimeOnly)
}

// formatCost formats predicted seconds; "-" for 0, the value without demand.
func formatCost(s float64) string {
	if s == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fms", s*1000)
}

func formatPercent(share float64) string { return fmt.Sprintf("%.1f %%", share*100) }

func formatChange(from, to string) string {
	if from == to {
		return from
	}
	return from + " -> " + to
}

// formatShares formats shares by region, such as "virginia 60.2 %, frankfurt 39.8 %".
func formatShares(list []admin.PlanShare) string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		if s.Share >= 0.9995 {
			out = append(out, s.Region)
		} else {
			out = append(out, s.Region+" "+formatPercent(s.Share))
		}
	}
	return dashIfEmpty(strings.Join(out, ", "))
}
