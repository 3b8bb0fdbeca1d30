package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

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
				if output == "json" {
					return printJSON(cmd.OutOrStdout(), u)
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
