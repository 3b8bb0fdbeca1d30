package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

const linearizableHelp = "hold every change made before the question, wherever it was made (needs a leader)"

func getSpecCommand() *cobra.Command {
	var (
		to     target
		output string
		exact  bool
	)
	cmd := &cobra.Command{
		Use:   "spec [--linearizable]",
		Short: "Print the spec in force, to be edited and applied again",
		Long: `Print the spec in force, to be edited and applied again. A node answers from what it has, which may be a moment old;
with --linearizable it asks the leader first. The version goes to standard error, for --based-on.`,
		Example: "  spillway get spec --linearizable > spec.yaml\n  spillway apply -f spec.yaml --based-on 7",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				read := c.Spec
				if exact {
					read = c.SpecNow
				}
				a, err := read(ctx)
				if err != nil {
					return err
				}
				if output == "json" {
					return printJSON(cmd.OutOrStdout(), a)
				}
				fmt.Fprint(cmd.OutOrStdout(), a.Text)
				fmt.Fprintf(cmd.ErrOrStderr(), "spec v%d: `spillway apply --based-on %d` refuses if somebody else writes first\n", a.Version, a.Version)
				return nil
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().BoolVar(&exact, "linearizable", false, linearizableHelp)
	outputFlag(cmd, &output)
	return cmd
}

func getDrainsCommand() *cobra.Command {
	var (
		to     target
		output string
		exact  bool
	)
	cmd := &cobra.Command{
		Use:     "drains [--linearizable]",
		Short:   "List what is drained, until when, by whom and why",
		Example: "  spillway get drains --linearizable",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				read := c.Drains
				if exact {
					read = c.DrainsNow
				}
				a, err := read(ctx)
				if err != nil {
					return err
				}
				if output == "json" {
					return printJSON(cmd.OutOrStdout(), a)
				}
				printDrains(cmd.OutOrStdout(), a)
				return nil
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().BoolVar(&exact, "linearizable", false, linearizableHelp)
	outputFlag(cmd, &output)
	return cmd
}

func printDrains(w io.Writer, a *admin.DrainAnswer) {
	if len(a.Drains) == 0 {
		fmt.Fprintln(w, "nothing is drained")
		return
	}
	table(w, func(t io.Writer) {
		fmt.Fprintln(t, "PATH\tUNTIL\tBY\tREASON")
		for _, d := range a.Drains {
			until := "undrained"
			if !d.Until.IsZero() {
				until = d.Until.Format(time.RFC3339)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", d.Path, until, orDash(d.Actor), orDash(d.Reason))
		}
	})
	if a.Note != "" {
		fmt.Fprintln(w, "note:", a.Note)
	}
}
