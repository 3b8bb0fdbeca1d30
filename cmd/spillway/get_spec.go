package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

const linearizableHelp = "linearizable read: include every change that completed before this command, at any node (needs a leader)"

func newGetSpecCommand() *cobra.Command {
	var (
		to     adminTarget
		output string
		exact  bool
	)
	cmd := &cobra.Command{
		Use:   "spec [--linearizable]",
		Short: "Print the spec in force, to edit and apply again",
		Long: `Print the spec in force, to edit and apply again. A node answers from its own copy, which may lag behind the leader's by a
moment; with --linearizable it first confirms with the leader. The version is printed to standard error, for --based-on.`,
		Example: "  spillway get spec --linearizable > spec.yaml\n  spillway apply -f spec.yaml --based-on 7",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				read := c.GetSpec
				if exact {
					read = c.GetSpecLinearizable
				}
				a, err := read(ctx)
				if err != nil {
					return err
				}
				if output == "json" {
					return printJSON(cmd.OutOrStdout(), a)
				}
				fmt.Fprint(cmd.OutOrStdout(), a.Text)
				fmt.Fprintf(cmd.ErrOrStderr(), "spec v%d: `spillway apply --based-on %d` fails if another version was applied in between\n", a.Version, a.Version)
				return nil
			})
		},
	}
	to.addFlags(cmd)
	cmd.Flags().BoolVar(&exact, "linearizable", false, linearizableHelp)
	addOutputFlag(cmd, &output)
	return cmd
}

func newGetDrainsCommand() *cobra.Command {
	var (
		to     adminTarget
		output string
		exact  bool
	)
	cmd := &cobra.Command{
		Use:     "drains [--linearizable]",
		Short:   "List the drains: path, end, actor and reason",
		Example: "  spillway get drains --linearizable",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				read := c.ListDrains
				if exact {
					read = c.ListDrainsLinearizable
				}
				a, err := read(ctx)
				if err != nil {
					return err
				}
				if output == "json" {
					return printJSON(cmd.OutOrStdout(), a)
				}
				printDrains(cmd.OutOrStdout(), a, time.Now())
				return nil
			})
		},
	}
	to.addFlags(cmd)
	cmd.Flags().BoolVar(&exact, "linearizable", false, linearizableHelp)
	addOutputFlag(cmd, &output)
	return cmd
}

func printDrains(w io.Writer, a *admin.DrainAnswer, now time.Time) {
	if len(a.Drains) == 0 {
		fmt.Fprintln(w, "nothing is drained")
		return
	}
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "PATH\tTRAFFIC\tUNTIL\tBY\tREASON")
		for _, d := range a.Drains {
			until := "undrained"
			if !d.Until.IsZero() {
				until = d.Until.Format(time.RFC3339)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", d.Path, cmp.Or(formatDrainProgress(&d, now), "all drained"), until, dashIfEmpty(d.Actor), dashIfEmpty(d.Reason))
		}
	})
	if a.Note != "" {
		fmt.Fprintln(w, "note:", a.Note)
	}
}
