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

func newPromoteCommand() *cobra.Command {
	return newEndStageCommand(admin.StagePromote, "Put the staged spec in force everywhere, without waiting for its guard")
}

func newRollbackCommand() *cobra.Command {
	return newEndStageCommand(admin.StageRollback, "Roll back the staged spec: the spec before it is in force again")
}

func newEndStageCommand(action, short string) *cobra.Command {
	var (
		to  adminTarget
		req = admin.StageRequest{Action: action}
	)
	cmd := &cobra.Command{
		Use:     action,
		Short:   short,
		Example: "  spillway " + action + ` --reason "CHG-7"` + "\n  spillway get stage",
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
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
	to.addFlags(cmd)
	cmd.Flags().Uint64Var(&req.Number, "stage", 0, "refuse unless this is the number of the current stage (default: any)")
	cmd.Flags().StringVar(&req.Reason, "reason", "", "reason, for the audit log")
	return cmd
}

func newGetStageCommand() *cobra.Command {
	var (
		to     adminTarget
		output string
		text   bool
	)
	cmd := &cobra.Command{
		Use:     "stage [--spec]",
		Short:   "Show the staged spec: regions, remaining time, and the measurements of its guard",
		Example: "  spillway get stage\n  spillway get stage --spec > candidate.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.GetStage(ctx)
				switch {
				case err != nil:
					return err
				case isStructured(output):
					return printStructured(cmd.OutOrStdout(), output, a)
				case a.Stage == nil:
					fmt.Fprintf(cmd.OutOrStdout(), "no spec is staged: spec v%d is in force everywhere\n", a.SpecVersion)
				case text:
					fmt.Fprint(cmd.OutOrStdout(), a.Stage.Text)
				default:
					printStageLine(cmd.OutOrStdout(), a.Stage)
					printGuardFigures(cmd.OutOrStdout(), a.Stage)
				}
				return nil
			})
		},
	}
	to.addFlags(cmd)
	cmd.Flags().BoolVar(&text, "spec", false, "print the staged spec; if it is staged everywhere, the spec that a rollback restores")
	addOutputFlag(cmd, &output)
	return cmd
}

// printStageLine prints one line about the staged spec, if there is one.
func printStageLine(w io.Writer, g *admin.StageStatus) {
	if g == nil {
		return
	}
	fmt.Fprintf(w, "stage %d: spec v%d is staged %s, %s%s%s\n", g.Number, g.Version, formatStageRegions(g), formatStageTime(g), formatStageGuard(g), formatReasonAndActor(g.Reason, g.Actor))
}

func printGuardFigures(w io.Writer, g *admin.StageStatus) {
	for line := range strings.SplitSeq(strings.TrimSpace(g.Figures), "\n") {
		if line != "" {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
}

// printStagedSpec prints where an apply staged the spec, or would stage it.
func printStagedSpec(w io.Writer, g *admin.StageStatus, dryRun bool) {
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
	fmt.Fprintf(w, "spec v%d %s staged %s%s%s\n", g.Version, verb, formatStageRegions(g), end, formatStageGuard(g))
	if !g.Everywhere {
		fmt.Fprintln(w, "steering and redirects use the spec in force until the staged one is promoted")
	}
}

func formatStageRegions(g *admin.StageStatus) string {
	if g.Everywhere {
		return "everywhere"
	}
	return "in " + strings.Join(g.Regions, ", ")
}

func formatStageTime(g *admin.StageStatus) string {
	if g.WindowMS == 0 {
		return "until promoted or rolled back"
	}
	return formatAge(g.ElapsedMS) + " of " + formatAge(g.WindowMS)
}

func formatStageGuard(g *admin.StageStatus) string {
	if g.Guard == "" {
		return ", no guard"
	}
	return ", guard " + g.Guard
}
