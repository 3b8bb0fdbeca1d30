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

func planCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan show|diff|history",
		Short: "Show the steering plan in force, what moved between two, and the last ones",
		Long: `Show the steering plan in force, what moved between two, and the last ones.

Raft keeps the newest plan alone: older ones are what the global node asked has seen since it started, 64 at most.`,
		GroupID: "operate",
		Args:    knownVerb,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(planShowCommand(), planDiffCommand(), planHistoryCommand())
	return cmd
}

func planShowCommand() *cobra.Command {
	var (
		to     target
		output string
	)
	cmd := &cobra.Command{
		Use:     "show [EPOCH]",
		Short:   "Show a plan: each region's price, the displaced cells and their shares, and who made it when and why",
		Example: "  spillway plan show\n  spillway plan show 17 -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			epochs, err := epochsOf(args)
			if err != nil {
				return err
			}
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.Plan(ctx, epochs[0])
				return show(cmd.OutOrStdout(), output, a, err, printPlan)
			})
		},
	}
	to.flags(cmd)
	outputFlag(cmd, &output)
	return cmd
}

func planDiffCommand() *cobra.Command {
	var (
		to     target
		output string
	)
	cmd := &cobra.Command{
		Use:   "diff [FROM [TO]]",
		Short: "Show what moved between two plans (default: the newest and the one before it)",
		Long: `Show what moved between two plans (default: the newest and the one before it).

Both are read with the spec and the map in use now, each with the regions drained or lost that it was made without.`,
		Example: "  spillway plan diff\n  spillway plan diff 15\n  spillway plan diff 15 17",
		Args:    cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			epochs, err := epochsOf(args)
			if err != nil {
				return err
			}
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.PlanDiff(ctx, epochs[0], epochs[1])
				return show(cmd.OutOrStdout(), output, a, err, printPlanDiff)
			})
		},
	}
	to.flags(cmd)
	outputFlag(cmd, &output)
	return cmd
}

func planHistoryCommand() *cobra.Command {
	var (
		to     target
		output string
		limit  uint64
	)
	cmd := &cobra.Command{
		Use:     "history",
		Short:   "List the newest plans that a node has seen since it started: when, why, cost, size and cells moved",
		Example: "  spillway plan history\n  spillway plan history --limit 5 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.PlanHistory(ctx, limit)
				return show(cmd.OutOrStdout(), output, a, err, printPlanHistory)
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().Uint64Var(&limit, "limit", 20, "at most so many; 0: all that the node remembers")
	outputFlag(cmd, &output)
	return cmd
}

// epochsOf reads up to two epochs; what is left out is 0.
func epochsOf(args []string) (out [2]uint64, err error) {
	for i, a := range args {
		if out[i], err = strconv.ParseUint(a, 10, 64); err != nil || out[i] == 0 {
			return out, fmt.Errorf("%q is not a plan's epoch: `spillway plan history` lists them", a)
		}
	}
	return out, nil
}

// show prints an answer as JSON or as print does.
func show[A any](w io.Writer, output string, a *A, err error, print func(io.Writer, *A)) error {
	if err != nil {
		return err
	}
	if output == "json" {
		return printJSON(w, a)
	}
	print(w, a)
	return nil
}

func printPlan(w io.Writer, a *admin.PlanAnswer) {
	standing := "no longer in force"
	if a.InForce {
		standing = "in force"
	}
	fmt.Fprintf(w, "plan %d: %s at %s for %s, %s\n", a.Epoch, standing, a.Node, age(a.AgeMS), origin(&a.PlanOf))
	fmt.Fprintf(w, "spec v%d, term %d, %d bytes, cost %s (before %s)\n", a.SpecVersion, a.Term, a.Bytes, cost(a.CostSeconds), cost(a.CostBeforeSeconds))
	if len(a.Without) > 0 {
		fmt.Fprintf(w, "without: %s\n", strings.Join(a.Without, ", "))
	}
	for _, n := range a.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	for i := range a.Services {
		printPlanService(w, &a.Services[i])
	}
}

func printPlanService(w io.Writer, s *admin.PlanService) {
	fmt.Fprintf(w, "\n%s (%s): %d of %d cells displaced\n", s.Name, s.Mode, len(s.Rows), s.Cells)
	table(w, func(t io.Writer) {
		fmt.Fprintln(t, "  REGION\tWAIT\tPRICE\tSPREAD\tCELLS\tRAMP")
		for _, r := range s.Regions {
			ramp := "-"
			if r.Ramp > 0 {
				ramp = percent(r.Ramp)
			}
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%.1f\t%s\n", r.Name, seconds(r.Wait), cost(r.Price), percent(r.Spread), r.Cells, ramp)
		}
	})
	if len(s.Rows) == 0 {
		return
	}
	table(w, func(t io.Writer) {
		fmt.Fprintln(t, "  DISPLACED\tSHARES\tPINNED")
		for _, r := range s.Rows {
			fmt.Fprintf(t, "  %s\t%s\t%s\n", r.Cell, shares(r.Shares), pinned(r.Pinned))
		}
	})
}

// pinned lists heavy networks by region, a few of them.
func pinned(pins []admin.PlanPin) string {
	const most = 4
	var out []string
	for _, p := range pins[:min(len(pins), most)] {
		out = append(out, p.Network+" "+p.Region)
	}
	if more := len(pins) - most; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return cmp.Or(strings.Join(out, ", "), "-")
}

func printPlanDiff(w io.Writer, a *admin.PlanDiffAnswer) {
	fmt.Fprintf(w, "from plan %d (%s) to plan %d (%s)\n", a.From.Epoch, origin(&a.From), a.To.Epoch, origin(&a.To))
	if len(a.Without) > 0 {
		fmt.Fprintf(w, "now without: %s\n", strings.Join(a.Without, ", "))
	}
	if len(a.With) > 0 {
		fmt.Fprintf(w, "again with: %s\n", strings.Join(a.With, ", "))
	}
	if len(a.Services) == 0 {
		fmt.Fprintln(w, "nothing differs")
	}
	for i := range a.Services {
		printServiceDiff(w, &a.Services[i])
	}
}

func printServiceDiff(w io.Writer, s *admin.PlanServiceDiff) {
	fmt.Fprintf(w, "\n%s: %d cells moved\n", s.Name, s.Moved)
	if len(s.Regions) > 0 {
		table(w, func(t io.Writer) {
			fmt.Fprintln(t, "  REGION\tWAIT\tPRICE\tSPREAD\tCELLS")
			for _, r := range s.Regions {
				fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", r.From.Name, arrow(seconds(r.From.Wait), seconds(r.To.Wait)), arrow(cost(r.From.Price), cost(r.To.Price)),
					arrow(percent(r.From.Spread), percent(r.To.Spread)), arrow(fmt.Sprintf("%.1f", r.From.Cells), fmt.Sprintf("%.1f", r.To.Cells)))
			}
		})
	}
	if len(s.Cells) > 0 {
		table(w, func(t io.Writer) {
			fmt.Fprintln(t, "  CELL\tMOVED\tFROM\tTO")
			for _, c := range s.Cells {
				fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", c.Cell, percent(c.Moved), shares(c.From), shares(c.To))
			}
		})
	}
}

func printPlanHistory(w io.Writer, a *admin.PlanHistoryAnswer) {
	if len(a.Plans) == 0 {
		fmt.Fprintf(w, "%s has seen no plan since it started\n", a.Node)
		return
	}
	fmt.Fprintf(w, "as %s has seen since it started; it remembers the last %d\n", a.Node, a.Kept)
	table(w, func(t io.Writer) {
		fmt.Fprintln(t, "EPOCH\tWHEN\tREASON\tCOST\tBEFORE\tBYTES\tSPEC\tCELLS MOVED\tSHARE\tBY")
		for i := range a.Plans {
			p := &a.Plans[i]
			cells, share := strconv.Itoa(p.Cells), percent(p.Share)
			if p.First {
				cells, share = "-", "-"
			}
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%d\tv%d\t%s\t%s\t%s\n", p.Epoch, when(&p.PlanOf), orDash(p.Reason), cost(p.CostSeconds),
				cost(p.CostBeforeSeconds), p.Bytes, p.SpecVersion, cells, share, orDash(p.By))
		}
	})
}

// origin is who made a plan, when and why.
func origin(p *admin.PlanOf) string {
	if p.By == "" {
		return "made by a leader of an earlier release"
	}
	return fmt.Sprintf("made by %s at %s (%s)", p.By, when(p), p.Reason)
}

func when(p *admin.PlanOf) string {
	if p.MadeAt.IsZero() {
		return age(p.AgeMS) + " ago"
	}
	return p.MadeAt.Local().Format(time.TimeOnly)
}

// cost prints predicted seconds; without demand there are none.
func cost(s float64) string {
	if s == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fms", s*1000)
}

func percent(part float64) string { return fmt.Sprintf("%.1f %%", part*100) }

func arrow(from, to string) string {
	if from == to {
		return from
	}
	return from + " -> " + to
}

// shares is "virginia 60.2 %, frankfurt 39.8 %".
func shares(list []admin.PlanShare) string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		if s.Share >= 0.9995 {
			out = append(out, s.Region)
		} else {
			out = append(out, s.Region+" "+percent(s.Share))
		}
	}
	return orDash(strings.Join(out, ", "))
}
