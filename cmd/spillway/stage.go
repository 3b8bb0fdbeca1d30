package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

func promoteCommand() *cobra.Command {
	return endStageCommand(admin.StagePromote, "Keep the spec on trial: put it in force everywhere, whatever its guard has still to say")
}

func rollbackCommand() *cobra.Command {
	return endStageCommand(admin.StageRollback, "Take the spec on trial back: what was in force before it is in force again")
}

func endStageCommand(action, short string) *cobra.Command {
	var (
		to  target
		req = admin.StageRequest{Action: action}
	)
	cmd := &cobra.Command{
		Use:     action,
		Short:   short,
		Example: "  spillway " + action + ` --reason "CHG-7"` + "\n  spillway get stage",
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.EndStage(ctx, req)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: spec v%d is in force everywhere\n", map[string]string{
					admin.StagePromote: "promoted", admin.StageRollback: "rolled back",
				}[action], a.SpecVersion)
				return nil
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().Uint64Var(&req.Number, "stage", 0, "refuse unless this stage is under way (default: whichever is)")
	cmd.Flags().StringVar(&req.Reason, "reason", "", "why, for the audit")
	return cmd
}

func getStageCommand() *cobra.Command {
	var (
		to     target
		output string
		text   bool
	)
	cmd := &cobra.Command{
		Use:     "stage [--spec]",
		Short:   "Show the spec on trial: where, for how much longer, and what its guard measures",
		Example: "  spillway get stage\n  spillway get stage --spec > candidate.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.Stage(ctx)
				switch {
				case err != nil:
					return err
				case output == "json":
					return printJSON(cmd.OutOrStdout(), a)
				case a.Stage == nil:
					fmt.Fprintf(cmd.OutOrStdout(), "nothing is on trial: spec v%d is in force everywhere\n", a.SpecVersion)
				case text:
					fmt.Fprint(cmd.OutOrStdout(), a.Stage.Text)
				default:
					printStage(cmd.OutOrStdout(), a.Stage)
					printFigures(cmd.OutOrStdout(), a.Stage)
				}
				return nil
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().BoolVar(&text, "spec", false, "print the spec on trial; of a trial everywhere, the one to go back to")
	outputFlag(cmd, &output)
	return cmd
}

// printStage is one line about a spec on trial.
func printStage(w io.Writer, g *admin.StageStatus) {
	if g == nil {
		return
	}
	fmt.Fprintf(w, "stage %d: spec v%d is on trial %s, %s%s%s\n", g.Number, g.Version, stageWhere(g), stageTime(g), stageGuard(g), because(g.Reason, g.Actor))
}

func printFigures(w io.Writer, g *admin.StageStatus) {
	for line := range strings.SplitSeq(strings.TrimSpace(g.Figures), "\n") {
		if line != "" {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
}

// printTrial says what an apply has put on trial, or would.
func printTrial(w io.Writer, g *admin.StageStatus, dryRun bool) {
	if g == nil {
		return
	}
	verb, end := "is", ""
	if dryRun {
		verb = "would be"
	}
	if g.WindowMS > 0 {
		end = " for " + (time.Duration(g.WindowMS) * time.Millisecond).String()
	}
	fmt.Fprintf(w, "spec v%d %s on trial %s%s%s\n", g.Version, verb, stageWhere(g), end, stageGuard(g))
	if !g.Everywhere {
		fmt.Fprintln(w, "clients are steered and redirected by the spec in force until it is promoted")
	}
}

func stageWhere(g *admin.StageStatus) string {
	if g.Everywhere {
		return "everywhere"
	}
	return "in " + strings.Join(g.Regions, ", ")
}

func stageTime(g *admin.StageStatus) string {
	if g.WindowMS == 0 {
		return "until promoted or rolled back"
	}
	return age(g.ElapsedMS) + " of " + age(g.WindowMS)
}

func stageGuard(g *admin.StageStatus) string {
	if g.Guard == "" {
		return ", no guard"
	}
	return ", guard " + g.Guard
}
