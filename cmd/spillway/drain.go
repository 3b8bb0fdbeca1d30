package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

const drainScopes = `NAME is a path: a region (virginia), region/zone (virginia/a) or region/zone/worker (virginia/a/w1).`

func drainCommand() *cobra.Command {
	var (
		to     target
		dur    time.Duration
		reason string
	)
	cmd := &cobra.Command{
		Use:   "drain region|zone|worker NAME",
		Short: "Send nothing new to a region, a zone or a worker; what runs there finishes",
		Long:  "Send nothing new to a region, a zone or a worker; what runs there finishes.\n\n" + drainScopes,
		Example: `  spillway drain region frankfurt --for 30m --reason "kernel upgrade"
  spillway drain zone virginia/a
  spillway drain worker tokyo/b/w3 --reason "ECC errors"`,
		GroupID: "operate",
		Args:    scopeArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if dur < 0 {
				return fmt.Errorf("--for is %s: write a time to come, such as 30m, or leave it out to drain until undrained", dur)
			}
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.Drain(ctx, admin.DrainRequest{Path: args[1], ForMS: dur.Milliseconds(), Reason: reason})
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "draining %s %s; `spillway undrain %s %s` brings it back\n", args[0], args[1], args[0], args[1])
				printDrainNote(cmd, a)
				return nil
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().DurationVar(&dur, "for", 0, "end the drain by itself after this long (default: until undrained)")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever finds it")
	return cmd
}

func undrainCommand() *cobra.Command {
	var (
		to     target
		reason string
	)
	cmd := &cobra.Command{
		Use:     "undrain region|zone|worker NAME",
		Short:   "Let a drained region, zone or worker take traffic again",
		Long:    "Let a drained region, zone or worker take traffic again.\n\n" + drainScopes,
		Example: "  spillway undrain region frankfurt",
		GroupID: "operate",
		Args:    scopeArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.Undrain(ctx, args[1], reason)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s takes traffic again\n", args[0], args[1])
				printDrainNote(cmd, a)
				return nil
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	return cmd
}

func printDrainNote(cmd *cobra.Command, a *admin.DrainAnswer) {
	if a.Note != "" {
		fmt.Fprintln(cmd.OutOrStdout(), "note:", a.Note)
	}
}

// scopeArgs checks that the scope named and the depth of the path agree, so that a slip of the hand cannot drain a
// region instead of a zone.
func scopeArgs(_ *cobra.Command, args []string) error {
	depth := map[string]int{"region": 1, "zone": 2, "worker": 3}
	if len(args) != 2 || depth[args[0]] == 0 {
		return fmt.Errorf("say what to drain: region NAME, zone REGION/ZONE or worker REGION/ZONE/WORKER")
	}
	if got := pathDepth(args[1]); got != depth[args[0]] {
		return fmt.Errorf("%q does not name a %s: %s", args[1], args[0], drainScopes)
	}
	return nil
}

// pathDepth counts the parts of a path, 0 when one is empty.
func pathDepth(p string) int {
	depth, part := 0, 0
	for i := 0; i <= len(p); i++ {
		if i < len(p) && p[i] != '/' {
			part++
			continue
		}
		if part == 0 {
			return 0
		}
		depth, part = depth+1, 0
	}
	return depth
}
