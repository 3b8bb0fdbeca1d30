package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

func getCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "get queue|autoscaling|uplinks|spec|stage|drains",
		Example: "  spillway get queue\n  spillway get queue --tenants\n  spillway get autoscaling\n  spillway get spec --linearizable",
		Short:   "Show one part of a node in full: who waits in a zone, how many replicas it asks for, its uplinks, what is agreed",
		GroupID: "operate",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("get what?\nhint: `spillway get queue --server unix:///path/of/a/local/admin.sock`")
			}
			return fmt.Errorf("there is no %q to get\nhint: `spillway get queue`, `autoscaling`, `uplinks`, `spec`, `stage` or `drains`", args[0])
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(getQueueCommand(), getAutoscalingCommand(), getUplinksCommand(), getSpecCommand(), getStageCommand(), getDrainsCommand())
	return cmd
}

func getQueueCommand() *cobra.Command {
	var (
		to      target
		output  string
		tenants bool
	)
	cmd := &cobra.Command{
		Use:     "queue [--server unix:///path/of/a/local/admin.sock]",
		Short:   "Show who waits for a worker in one local instance, and whom it refuses",
		Long:    "Show who waits for a worker in one local instance, and whom it refuses. Queues are a local instance's own: name\nits admin socket with --server where more than one runs on this machine.",
		Example: "  spillway get queue --server unix:///run/spillway/local-a.sock\n  spillway get queue --tenants --server https://10.0.0.7:7404 --cert op.pem --key op.key --ca ca.pem",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := to.oneLocal(cmd.Context()); err != nil {
				return err
			}
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				q, err := c.Queue(ctx)
				if err != nil {
					return err
				}
				if output == "json" {
					return printJSON(cmd.OutOrStdout(), q)
				}
				printQueue(cmd.OutOrStdout(), q, tenants)
				return nil
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().BoolVar(&tenants, "tenants", false, "show each tenant")
	outputFlag(cmd, &output)
	return cmd
}

// oneLocal makes the only local instance that runs on this machine the one to ask, when none is named.
func (t *target) oneLocal(ctx context.Context) error {
	if t.servers != "" {
		return nil
	}
	nodes, err := admin.ListRunning(ctx)
	if err != nil {
		return err
	}
	var found []admin.Running
	for _, n := range nodes {
		if n.Role == "local" {
			found = append(found, n)
		}
	}
	switch {
	case len(found) == 0 && len(nodes) == 1: // a gateway and a zone in one process
		return nil
	case len(found) == 0:
		return errors.New("no local instance runs on this machine\nhint: name one with --server unix:///path/of/its/admin.sock")
	case len(found) > 1:
		return fmt.Errorf("%d local instances run on this machine\nhint: name one with --server, such as %s", len(found), found[0].Server())
	}
	t.servers = found[0].Server()
	return nil
}

func printQueue(w io.Writer, q *admin.QueueAnswer, tenants bool) {
	fmt.Fprintf(w, "%s\n", q.Node)
	for i := range q.Models {
		m := &q.Models[i]
		fmt.Fprintf(w, "\n%s: %d of %d wait, %s of %s bytes, draining %s tok/s, saturation %.2f\n", m.Model, m.Waiting, m.MaxWaiting,
			count(m.Bytes), count(m.MaxBytes), count(int64(m.DrainRate)), m.Saturation)
		if m.ShedProbability > 0 {
			fmt.Fprintf(w, "note: new batch requests are refused with probability %.2f\n", m.ShedProbability)
		}
		if m.Panic {
			fmt.Fprintln(w, "note: so few workers take requests that those out for error answers or latency are used too")
		}
		table(w, func(t io.Writer) { queueRows(t, m.Classes, tenants) })
	}
}

func queueRows(t io.Writer, classes []admin.QueueClass, tenants bool) {
	fmt.Fprintln(t, "  CLASS\tWEIGHT\tWAITING\tRUNNING\tTOKENS\tOLDEST\tWAIT\tPASSED\tTAKEN\tGONE\tREFUSED")
	for i := range classes {
		c := &classes[i]
		wait := "-"
		if c.WaitMS >= 0 {
			wait = age(c.WaitMS)
		}
		fmt.Fprintf(t, "  %s\t%.1f\t%d\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", c.Class, c.Weight, c.Waiting, c.Running, count(c.Tokens), age(c.OldestMS),
			wait, c.Passed, c.Taken, c.Gone, refusals(c.Refused))
		if !tenants {
			continue
		}
		for _, k := range c.Tenants {
			fmt.Fprintf(t, "    %s\t\t%d\t%d\t%s\t\t\t\t\t\t%+.1f GPU s ahead\n", k.Tenant, k.Waiting, k.Running, count(k.Tokens), k.AheadSeconds)
		}
		if more := c.TenantCount - len(c.Tenants); more > 0 {
			fmt.Fprintf(t, "    and %d more tenants\t\t\t\t\t\t\t\t\t\t\n", more)
		}
	}
}

func refusals(by map[string]uint64) string {
	if len(by) == 0 {
		return "-"
	}
	var out []string
	for _, why := range slices.Sorted(maps.Keys(by)) {
		out = append(out, fmt.Sprintf("%s %d", why, by[why]))
	}
	return strings.Join(out, ", ")
}
