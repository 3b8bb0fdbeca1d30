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

func getUplinksCommand() *cobra.Command {
	var (
		to     target
		output string
	)
	cmd := &cobra.Command{
		Use:     "uplinks",
		Short:   "Show the sessions that carry capacity up and policy down: how old, how far, what was lost, who was refused",
		Example: "  spillway get uplinks --server unix:///run/spillway/gw1.sock\n  spillway get uplinks -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				u, err := c.Uplinks(ctx)
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
	to.flags(cmd)
	outputFlag(cmd, &output)
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
		fmt.Fprintf(w, "children are asked to keep %s between statements\n", age(u.GapMS))
	}
	for _, why := range slices.Sorted(maps.Keys(u.Refused)) {
		if n := u.Refused[why]; n > 0 {
			fmt.Fprintf(w, "refused for %s: %d\n", why, n)
		}
	}
	table(w, func(t io.Writer) {
		fmt.Fprintln(t, "\nPEER\tSTATE\tVERSION\tAGE\tRTT\tLOSS\tIN\tOUT\tDELTAS\tSNAPSHOTS\tDIRECTIVES\tPASSED\tPOLICY")
		for i := range u.Parents {
			uplinkRow(t, "^ ", &u.Parents[i])
		}
		for i := range u.Children {
			uplinkRow(t, "v ", &u.Children[i])
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

func uplinkRow(t io.Writer, way string, s *admin.UplinkSession) {
	name := s.Address
	switch {
	case s.Path != "":
		name = s.Path
	case s.Peer != "":
		name = s.Peer
	}
	old, state := "-", s.State
	if s.AgeMS >= 0 {
		old = age(s.AgeMS)
	}
	state += " " + age(s.SinceMS)
	if s.State != "connected" {
		fmt.Fprintf(t, "%s%s\t%s\t-\t%s\t-\t-\t-\t-\t-\t-\t-\t-\t-\n", way, name, state, old)
		return
	}
	rtt := time.Duration(s.RTTMS * float64(time.Millisecond)).Round(10 * time.Microsecond)
	fmt.Fprintf(t, "%s%s\t%s\t%d\t%s\t%s\t%.2f%%\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", way, name, state, s.Version, old, rtt, 100*s.Loss,
		count(int64(s.BytesIn)), count(int64(s.BytesOut)), s.Deltas, s.Snapshots, s.Directives, s.Passed, policyOf(s))
}

// policyOf is the position of a session's policy, and why it is not followed.
func policyOf(s *admin.UplinkSession) string {
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
