package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

func newLogLevelCommand() *cobra.Command {
	var (
		to       adminTarget
		duration time.Duration
	)
	cmd := &cobra.Command{
		Use:   "log-level [debug|info|warn|error]",
		Short: "Show or change the level of a node's log, without a restart",
		Long: `Show or change the level of a node's log, without a restart. With --for the earlier level returns after that time;
otherwise the change lasts until the next one or the restart, after which --log-level of the node applies again.`,
		Example:   "  spillway log-level\n  spillway log-level debug --for 10m",
		GroupID:   "operate",
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: []string{"debug", "info", "warn", "error"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if duration < 0 || duration > 0 && len(args) == 0 {
				return newUsageError("log-level [debug|info|warn|error] [--for DURATION]", "--for takes a positive duration and needs a level")
			}
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := readOrSetLogLevel(ctx, c, args, duration)
				if err != nil {
					return err
				}
				text := strings.ToLower(a.Level)
				if a.Until != nil {
					text += fmt.Sprintf(" until %s, then %s", a.Until.Format(time.RFC3339), strings.ToLower(a.Then))
				}
				fmt.Fprintln(cmd.OutOrStdout(), text)
				return nil
			})
		},
	}
	to.addFlags(cmd)
	cmd.Flags().DurationVar(&duration, "for", 0, "how long the change lasts, such as 10m (default: until the next change or restart)")
	return cmd
}

// readOrSetLogLevel changes the level if one is named.
func readOrSetLogLevel(ctx context.Context, c *admin.Client, args []string, duration time.Duration) (*admin.LogLevelAnswer, error) {
	if len(args) == 0 {
		return c.GetLogLevel(ctx)
	}
	return c.SetLogLevel(ctx, admin.LogLevelRequest{Level: args[0], ForMS: duration.Milliseconds()})
}
