package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

func ticketsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tickets",
		Short: "Rotate the keys that sign redirect tickets",
		Long: `Rotate the keys that sign redirect tickets. Global nodes sign a ticket with each 307, and gateways open it. The leader
makes a new key every day; every gateway that the spec lists holds the keys in force.`,
		Example: "  spillway tickets rotate\n  spillway tickets rotate --purge --reason \"gateway gw3 stolen\"",
		GroupID: "operate",
	}
	cmd.AddCommand(ticketsRotateCommand())
	return cmd
}

func ticketsRotateCommand() *cobra.Command {
	var (
		to     target
		purge  bool
		reason string
	)
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Make a new key for redirect tickets",
		Long: `Make a new key for redirect tickets. Tickets of the earlier keys still open. With --purge the earlier keys are removed:
use it when a gateway or its certificate was stolen, after the gateway was removed from the spec. Redirects on their way
are then refused for some seconds, and clients have to call the service again.`,
		Example: "  spillway tickets rotate --purge --reason \"gateway gw3 stolen\"",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.RotateTickets(ctx, admin.TicketsRequest{Purge: purge, Reason: reason})
				if err != nil {
					return err
				}
				for i, at := range a.Keys {
					use := "opens tickets"
					if i == 0 {
						use = "new"
					}
					fmt.Fprintf(cmd.OutOrStdout(), "key of %s: %s\n", at.Format(time.RFC3339), use)
				}
				return nil
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().BoolVar(&purge, "purge", false, "remove all earlier keys")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	return cmd
}
