package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

func newTicketsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tickets",
		Short: "Rotate the keys that sign redirect tickets",
		Long: `Rotate the keys that sign redirect tickets. Global nodes sign a ticket with each 307, and gateways verify it. The leader
creates a new key every day and distributes the valid keys to every gateway in the spec.`,
		Example: "  spillway tickets rotate\n  spillway tickets rotate --purge --reason \"gateway gw3 stolen\"",
		GroupID: "operate",
	}
	cmd.AddCommand(newTicketsRotateCommand())
	return cmd
}

func newTicketsRotateCommand() *cobra.Command {
	var (
		to     adminTarget
		purge  bool
		reason string
	)
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Create a new key for redirect tickets",
		Long: `Create a new key for redirect tickets. Tickets signed with earlier keys stay valid. With --purge the earlier keys are
removed: use it when a gateway or its certificate was stolen, after the gateway was removed from the spec. Redirects in
flight are then refused for some seconds, and their clients have to call the service again.`,
		Example: "  spillway tickets rotate --purge --reason \"gateway gw3 stolen\"",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.RotateTickets(ctx, admin.TicketsRequest{Purge: purge, Reason: reason})
				if err != nil {
					return err
				}
				for i, at := range a.Keys {
					use := "verifies earlier tickets"
					if i == 0 {
						use = "new"
					}
					fmt.Fprintf(cmd.OutOrStdout(), "key of %s: %s\n", at.Format(time.RFC3339), use)
				}
				return nil
			})
		},
	}
	to.addFlags(cmd)
	cmd.Flags().BoolVar(&purge, "purge", false, "remove all earlier keys")
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for the audit log")
	return cmd
}
