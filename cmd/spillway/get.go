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

func newGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "get queue|autoscaling|uplinks|spec|stage|drains",
		Example: "  spillway get queue\n  spillway get queue --tenants\n  spillway get autoscaling\n  spillway get spec --linearizable",
		Short:   "Show one part of a node's state: queues, autoscaling, uplinks, the spec, the staged spec or drains",
		GroupID: "operate",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return newUsageError(cmd.Use, "")
			}
			return newUsageError(cmd.Use, fmt.Sprintf("%q is none of these", args[0]))
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(newGetQueueCommand(), newGetAutoscalingCommand(), newGetUplinksCommand(), newGetSpecCommand(), newGetStageCommand(), newGetDrainsCommand())
	return cmd
}

func newGetQueueCommand() *cobra.Command {
	var (
		to      adminTarget
		output  string
		tenants bool
	)
	cmd := &cobra.Command{
		Use:   "queue [--server unix:///path/to/local/admin.sock]",
		Short: "Show the queues of one local instance: requests waiting for a worker and rejected ones",
		Long: `Show the queues of one local instance: requests waiting for a worker and rejected ones. Each local instance has its own
queues: name its admin socket with --server if several run on this machine. Columns, since the instance started:
  DIRECT      dispatched without waiting
  FROM QUEUE  dispatched after waiting
  ABANDONED   left the queue: the client disconnected, the deadline passed, or a more urgent request took the place
  REJECTED    refused on arrival, by reason`,
		Example: "  spillway get queue --server unix:///run/spillway/local-a.sock\n  spillway get queue --tenants --server https://10.0.0.7:7404 --cert op.pem --key op.key --ca ca.pem",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := to.chooseLocalInstance(cmd.Context()); err != nil {
				return err
			}
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				q, err := c.GetQueue(ctx)
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
	to.addFlags(cmd)
	cmd.Flags().BoolVar(&tenants, "tenants", false, "show the requests of each tenant")
	addOutputFlag(cmd, &output)
	return cmd
}

// chooseLocalInstance selects the only local instance on this machine if --server names none.
func (t *adminTarget) chooseLocalInstance(ctx context.Context) error {
	if t.servers != "" {
		return nil
	}
	nodes, err := admin.ListRunning(ctx)
	if err != nil {
		return err
	}
	var found []admin.RunningNode
	for _, n := range nodes {
		if n.Role == "local" {
			found = append(found, n)
		}
	}
	switch {
	case len(found) == 0 && len(nodes) == 1: // a gateway and a zone in one process
		return nil
	case len(found) == 0:
		return errors.New("no local instance runs on this machine\nhint: name one with --server unix:///path/to/its/admin.sock")
	case len(found) > 1:
		return fmt.Errorf("%d local instances run on this machine\nhint: name one with --server, such as %s", len(found), found[0].ServerAddr())
	}
	t.servers = found[0].ServerAddr()
	return nil
}

func printQueue(w io.Writer, q *admin.QueueAnswer, tenants bool) {
	fmt.Fprintf(w, "%s\n", q.Node)
	for i := range q.Models {
		m := &q.Models[i]
		fmt.Fprintf(w, "\n%s: %d of %d places used, %s of %s bytes, dispatching %s tok/s, saturation %.2f\n", m.Model, m.Waiting, m.MaxWaiting,
			formatCount(m.Bytes), formatCount(m.MaxBytes), formatCount(int64(m.DrainRate)), m.Saturation)
		if m.ShedProbability > 0 {
			fmt.Fprintf(w, "note: new batch requests are rejected with probability %.2f\n", m.ShedProbability)
		}
		if m.Panic {
			fmt.Fprintln(w, "note: too few workers are healthy: workers ejected for errors or latency are used too")
		}
		writeTable(w, func(t io.Writer) { printQueueRows(t, m.Classes, tenants) })
	}
}

func printQueueRows(t io.Writer, classes []admin.QueueClass, tenants bool) {
	fmt.Fprintln(t, "  CLASS\tWEIGHT\tWAITING\tRUNNING\tTOKENS\tOLDEST\tWAIT\tDIRECT\tFROM QUEUE\tABANDONED\tREJECTED")
	for i := range classes {
		c := &classes[i]
		wait := "-"
		if c.WaitMS >= 0 {
			wait = formatAge(c.WaitMS)
		}
		fmt.Fprintf(t, "  %s\t%.1f\t%d\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", c.Class, c.Weight, c.Waiting, c.Running, formatCount(c.Tokens), formatAge(c.OldestMS),
			wait, c.Passed, c.Taken, c.Gone, formatRefusals(c.Refused))
		if !tenants {
			continue
		}
		for _, k := range c.Tenants {
			fmt.Fprintf(t, "    %s\t\t%d\t%d\t%s\t\t\t\t\t\t%+.1f GPU s ahead\n", k.Tenant, k.Waiting, k.Running, formatCount(k.Tokens), k.AheadSeconds)
		}
		if more := c.TenantCount - len(c.Tenants); more > 0 {
			fmt.Fprintf(t, "    and %d more tenants\t\t\t\t\t\t\t\t\t\t\n", more)
		}
	}
}

func formatRefusals(by map[string]uint64) string {
	if len(by) == 0 {
		return "-"
	}
	var out []string
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		out = append(out, fmt.Sprintf("%s %d", reason, by[reason]))
	}
	return strings.Join(out, ", ")
}
