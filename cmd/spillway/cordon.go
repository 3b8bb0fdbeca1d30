package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

// newCordonCommand returns the command under the name that operators of Kubernetes know. A drain of a worker has the same
// meaning: nothing is evicted.
func newCordonCommand() *cobra.Command {
	var (
		to     adminTarget
		dur    time.Duration
		reason string
		force  bool
	)
	cmd := &cobra.Command{
		Use:   "cordon worker NAME",
		Short: "Send a worker no new requests; running ones continue (the same as drain worker)",
		Long: "Send a worker no new requests; running ones continue. It is the same as `spillway drain worker NAME`: `get drains` lists it\n" +
			"and `undrain` ends it as well. " + drainScopeHelp,
		Example: "  spillway cordon worker tokyo/b/w3 --reason \"ECC errors\"",
		GroupID: "operate",
		Args:    checkWorkerArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if dur < 0 {
				return newUsageMistake(fmt.Errorf("--for is %s: write a positive duration, such as 30m", dur))
			}
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.StartDrain(ctx, admin.DrainRequest{Path: args[1], ForMS: dur.Milliseconds(), Reason: reason, Force: force})
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "worker %s gets no new requests; `spillway uncordon worker %s` ends this\n", args[1], args[1])
				printDrainNote(cmd, a)
				return nil
			})
		},
	}
	to.addFlags(cmd)
	cmd.ValidArgsFunction = completeScope(&to, "worker")
	cmd.Flags().DurationVar(&dur, "for", 0, "end it automatically after this time (default: until uncordoned)")
	cmd.Flags().StringVar(&reason, "reason", "", "reason, shown by status and in the audit log")
	cmd.Flags().BoolVar(&force, "force", false, "cordon even if less remains than the spec requires")
	return cmd
}

func newUncordonCommand() *cobra.Command {
	var (
		to     adminTarget
		reason string
	)
	cmd := &cobra.Command{
		Use:     "uncordon worker NAME",
		Short:   "Send a worker requests again (the same as undrain worker)",
		Example: "  spillway uncordon worker tokyo/b/w3",
		GroupID: "operate",
		Args:    checkWorkerArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.EndDrain(ctx, args[1], reason)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "worker %s gets requests again\n", args[1])
				printDrainNote(cmd, a)
				return nil
			})
		},
	}
	to.addFlags(cmd)
	cmd.ValidArgsFunction = completeScope(&to, "worker")
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for the audit log")
	return cmd
}

// checkWorkerArgs requires "worker" and the path of a worker.
func checkWorkerArgs(cmd *cobra.Command, args []string) error {
	if len(args) != 2 || args[0] != "worker" {
		return newUsageError(cmd.Use, drainScopeHelp)
	}
	return checkScopeArgs(cmd, args)
}
