package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

func newNotifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "notify",
		Short:   "Test the webhooks that get notifications",
		Example: "  spillway notify test",
		GroupID: "operate",
		Args:    rejectUnknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newNotifyTestCommand())
	return cmd
}

func newNotifyTestCommand() *cobra.Command {
	var (
		to     adminTarget
		output string
	)
	cmd := &cobra.Command{
		Use:   "test [WEBHOOK]",
		Short: "Send a test event to the webhooks and print the results",
		Long: `Send a test event to every webhook of a global node (notifications in its config file), or to the named one, and print the
results. The event has the type test and a valid signature; it is sent once, without retries, by the node that answers. The
command fails if a webhook does not accept it.`,
		Example: "  spillway notify test\n  spillway notify test --server https://g2.example:7443",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var q admin.NotifyTestRequest
			if len(args) > 0 {
				q.Endpoint = args[0]
			}
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.TestNotifications(ctx, q)
				if err != nil {
					return err
				}
				if output == "json" {
					err = printJSON(cmd.OutOrStdout(), a)
				} else {
					printNotifyResults(cmd.OutOrStdout(), a)
				}
				failed := 0
				for _, r := range a.Results {
					if r.Error != "" {
						failed++
					}
				}
				if err == nil && failed > 0 {
					err = fmt.Errorf("%d of %d webhooks did not accept the event", failed, len(a.Results))
				}
				return err
			})
		},
	}
	to.addFlags(cmd)
	addOutputFlag(cmd, &output)
	return cmd
}

func printNotifyResults(w io.Writer, a *admin.NotifyTestAnswer) {
	fmt.Fprintf(w, "event %s, sent by %s\n", a.Event, a.Node)
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "WEBHOOK\tRESULT\tTOOK")
		for _, r := range a.Results {
			result := "accepted"
			if r.Error != "" {
				result = r.Error
			}
			fmt.Fprintf(t, "%s\t%s\t%s\n", r.Endpoint, result, formatTermSeconds(r.Seconds, true))
		}
	})
}
