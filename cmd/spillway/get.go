package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spillway-lb/spillway/internal/admin"
)

func newGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "get regions|zones|workers|models|tenants|members|queue|autoscaling|uplinks|drains|spec|stage",
		Example: "  spillway get regions\n  spillway get workers virginia/a --sort -kv-used\n  spillway get models -o json\n  spillway get queue --tenants\n  spillway get spec --linearizable",
		Short:   "List regions, zones, workers, models, tenants or members, or show one part of a node's state",
		Long: `List regions, zones, workers, models, tenants or members, or show one part of a node's state: queues, autoscaling, uplinks,
drains, the spec or the staged spec. Every list has the same flags: -o table, wide, json, yaml or template=TEXT, --sort COLUMN,
-w to print what changes, and names as arguments.

The JSON of a list is an object with the key items. An example of a template:
  -o 'template={{range .items}}{{.name}}{{"\n"}}{{end}}'`,
		GroupID: "operate",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return newUsageError(cmd.Use, "")
			}
			return newUsageError(cmd.Use, fmt.Sprintf("%q is none of these", args[0]))
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(newGetItemsCommand(newRegionKind()), newGetItemsCommand(newZoneKind()), newGetItemsCommand(newWorkerKind()),
		newGetItemsCommand(newModelKind()), newGetItemsCommand(newTenantKind()), newGetItemsCommand(newMemberKind()))
	for _, c := range []*cobra.Command{newGetQueueCommand(), newGetAutoscalingCommand(), newGetUplinksCommand(), newGetDrainsCommand(), newGetStageCommand()} {
		addTextWatch(c)
		cmd.AddCommand(c)
	}
	cmd.AddCommand(newGetSpecCommand())
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
				if isStructured(output) {
					return printStructured(cmd.OutOrStdout(), output, q)
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
	if err := t.resolveTarget(); err != nil || t.servers != "" {
		return err
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
				if isStructured(output) {
					return printStructured(cmd.OutOrStdout(), output, a)
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
				if isStructured(output) {
					return printStructured(cmd.OutOrStdout(), output, a)
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

func newGetAutoscalingCommand() *cobra.Command {
	var (
		to            adminTarget
		output, model string
	)
	cmd := &cobra.Command{
		Use:     "autoscaling [--server unix:///path/to/local/admin.sock]",
		Short:   "Show how many replicas of each model one local instance recommends, and why",
		Long:    "Show how many replicas of each model one local instance recommends, and why. Each instance of a zone reports the need of\nits own share of the demand: in a zone with several instances, sum NEEDED.",
		Example: "  spillway get autoscaling --server unix:///run/spillway/local-a.sock\n  spillway get autoscaling --model llama-3.1-8b -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := to.chooseLocalInstance(cmd.Context()); err != nil {
				return err
			}
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.GetAutoscaling(ctx, model)
				if err != nil {
					return err
				}
				if isStructured(output) {
					return printStructured(cmd.OutOrStdout(), output, a)
				}
				printAutoscaling(cmd.OutOrStdout(), a)
				return nil
			})
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringVar(&model, "model", "", "show only this model")
	addOutputFlag(cmd, &output)
	return cmd
}

func printAutoscaling(w io.Writer, a *admin.AutoscalingAnswer) {
	fmt.Fprintf(w, "%s\n", a.Node)
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "MODEL\tDESIRED\tNEEDED\tREADY\tSATURATION\tWAITING\tWAIT\tP50\tP99\tPREFILL tok/s\tDECODE tok/s\tPER REPLICA tok/s")
		for i := range a.Models {
			m := &a.Models[i]
			ready := formatReadyCount(&admin.ModelStatus{Ready: int64(m.Ready), Total: int64(m.Total), Warm: int64(m.Warm), Cold: int64(m.Cold)})
			fmt.Fprintf(t, "%s\t%d\t%.2f\t%s\t%.2f of %.2f\t%d\t%s\t%s\t%s\t%s\t%s\t%s + %s\n", m.Model, m.Desired, m.Needed, ready, m.Saturation, m.Target,
				m.Waiting, formatSeconds(m.PredictedWait), formatSeconds(m.WaitP50), formatSeconds(m.WaitP99), formatCount(int64(m.Demand.Prefill)), formatCount(int64(m.Demand.Decode)),
				formatCount(int64(m.Capacity.Prefill)), formatCount(int64(m.Capacity.Decode)))
		}
	})
}

func newGetUplinksCommand() *cobra.Command {
	var (
		to     adminTarget
		output string
	)
	cmd := &cobra.Command{
		Use:   "uplinks",
		Short: "Show the sessions between tiers: age, RTT, loss, messages and refused peers",
		Long: `Show the sessions between tiers, which carry capacity reports up and policy down. Columns:
  PEER        "parent" in the tier above, "child" in the tier below
  AGE         time since the last report of a child, or the last acknowledgement of a parent
  LOSS        share of the packets sent by this node that were lost
  DISCARDED   messages that were out of date, or above the rate that a child may send
  POLICY      position of the policy in force, and why a child ignores newer ones`,
		Example: "  spillway get uplinks --server unix:///run/spillway/gw1.sock\n  spillway get uplinks -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				u, err := c.GetUplinks(ctx)
				if err != nil {
					return err
				}
				if isStructured(output) {
					return printStructured(cmd.OutOrStdout(), output, u)
				}
				printUplinks(cmd.OutOrStdout(), u)
				return nil
			})
		},
	}
	to.addFlags(cmd)
	addOutputFlag(cmd, &output)
	return cmd
}

func printUplinks(w io.Writer, u *admin.UplinksAnswer) {
	children := 0
	for i := range u.Children {
		if u.Children[i].State != admin.UplinkRefused {
			children++
		}
	}
	fmt.Fprintf(w, "%s: %d sessions with the tier above, %d with children\n", u.Node, len(u.Parents), children)
	if u.GapMS > 0 {
		fmt.Fprintf(w, "overload: children are asked to report at most every %s\n", formatAge(u.GapMS))
	}
	for _, reason := range slices.Sorted(maps.Keys(u.Refused)) {
		if n := u.Refused[reason]; n > 0 {
			fmt.Fprintf(w, "refused sessions, %s: %d\n", reason, n)
		}
	}
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "\nPEER\tSTATE\tVERSION\tAGE\tRTT\tLOSS\tIN\tOUT\tDELTAS\tSNAPSHOTS\tDIRECTIVES\tDISCARDED\tPOLICY")
		for i := range u.Parents {
			printUplinkRow(t, "parent ", &u.Parents[i])
		}
		for i := range u.Children {
			printUplinkRow(t, "child ", &u.Children[i])
		}
	})
	for i := range u.Parents {
		if s := &u.Parents[i]; s.Error != "" {
			fmt.Fprintf(w, "note: %s: %s\n", s.Address, s.Error)
		}
	}
	for i := range u.Children {
		if s := &u.Children[i]; s.Error != "" {
			fmt.Fprintf(w, "note: %s at %s is refused: %s\n", s.Peer, s.Address, s.Error)
		}
	}
}

// printUplinkRow prints one session. kind is "parent " or "child ".
func printUplinkRow(t io.Writer, kind string, s *admin.UplinkSession) {
	name := s.Address
	switch {
	case s.Path != "":
		name = s.Path
	case s.Peer != "":
		name = s.Peer
	}
	age, state := "-", s.State
	if s.AgeMS >= 0 {
		age = formatAge(s.AgeMS)
	}
	state += " " + formatAge(s.SinceMS)
	if s.State != "connected" {
		fmt.Fprintf(t, "%s%s\t%s\t-\t%s\t-\t-\t-\t-\t-\t-\t-\t-\t-\n", kind, name, state, age)
		return
	}
	rtt := time.Duration(s.RTTMS * float64(time.Millisecond)).Round(10 * time.Microsecond)
	fmt.Fprintf(t, "%s%s\t%s\t%d\t%s\t%s\t%.2f%%\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", kind, name, state, s.Version, age, rtt, 100*s.Loss,
		formatCount(int64(s.BytesIn)), formatCount(int64(s.BytesOut)), s.Deltas, s.Snapshots, s.Directives, s.Passed, formatPolicyPosition(s))
}

// formatPolicyPosition returns the position of a session's policy, and why a child ignores it.
func formatPolicyPosition(s *admin.UplinkSession) string {
	if s.Generation == 0 && s.Index == 0 {
		return "-"
	}
	at := fmt.Sprintf("index %d", s.Index)
	if s.Generation != 0 {
		at = fmt.Sprintf("generation %s, %s", time.Unix(int64(s.Generation), 0).UTC().Format("2006-01-02T15:04:05Z"), at)
	}
	if s.Ignored != "" {
		at += ", ignored: " + strings.ReplaceAll(s.Ignored, "_", " ")
	}
	return at
}
