package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

const drainScopeHelp = `NAME is a path: a region (virginia), region/zone (virginia/a) or region/zone/worker (virginia/a/w1).`

func newDrainCommand() *cobra.Command {
	var (
		to     adminTarget
		dur    time.Duration
		over   time.Duration
		reason string

		dryRun, force, replace, wait bool
		drill                        string
		override                     bool
		timeout                      time.Duration
	)
	cmd := &cobra.Command{
		Use:   "drain region|zone|worker NAME",
		Short: "Stop sending new requests to a region, zone or worker; running requests finish",
		Long: "Stop sending new requests to a region, zone or worker; running requests finish.\n\n" +
			"A drain that leaves less than the spec requires (steering.drain_min_regions, drain_min_zones, drain_min_capacity) is " +
			"refused without --force. A drain of what is already drained is refused without --replace. With --over, new traffic " +
			"decreases linearly to zero over that time, except spilled requests from other regions, which stop at once. Undrain restores all traffic at once. Global nodes and " +
			"gateways of an earlier release ignore --over and drain at once.\n\n" +
			"The spec's safety rules (safety.min_regions, min_capacity_share, blocked_windows) are applied when the drain takes its place in the " +
			"replicated log: of two drains requested at the same time, the later one is judged after the earlier one. --force does not override them; " +
			"--override-safety does, with a --reason. `spillway drill stop-all --fleet` forbids all drains. With --drill the drain belongs to a drill: it needs --for, " +
			"and is refused while another drill, another drain or a staged spec is in progress.\n\nIn a region without a global tier each gateway has its own drains: drain at each of them.\n\n" + drainScopeHelp,
		Example: `  spillway drain region frankfurt --dry-run
  spillway drain region frankfurt --for 30m --reason "kernel upgrade"
  spillway drain region frankfurt --over 10m --dry-run
  spillway drain zone virginia/b --wait --timeout 15m
  spillway drain zone virginia/a
  spillway drain worker tokyo/b/w3 --reason "ECC errors"`,
		GroupID: "operate",
		Args:    checkScopeArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if dur < 0 {
				return fmt.Errorf("--for is %s: write a positive duration, such as 30m, or omit it to drain until undrained", dur)
			}
			if over < 0 {
				return fmt.Errorf("--over is %s: write a positive duration, such as 10m", over)
			}
			r := admin.DrainRequest{Path: args[1], ForMS: dur.Milliseconds(), OverMS: over.Milliseconds(), Reason: reason, DryRun: dryRun, Force: force, Replace: replace, Drill: drill, OverrideSafety: override}
			err := to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.StartDrain(ctx, r)
				if err != nil {
					return err
				}
				if dryRun {
					fmt.Fprintf(cmd.OutOrStdout(), "drain of %s %s, dry run: nothing is changed\n", args[0], args[1])
				} else {
					fmt.Fprintf(cmd.OutOrStdout(), "draining %s %s; `spillway undrain %s %s` ends the drain\n", args[0], args[1], args[0], args[1])
				}
				printDrainSchedule(cmd.OutOrStdout(), over)
				printDrainImpact(cmd.OutOrStdout(), a.Impact, dryRun)
				printDrainNote(cmd, a)
				return nil
			})
			if err != nil || dryRun || !wait {
				return err
			}
			return waitUntilDrained(cmd, &to, args[1], over, timeout)
		},
	}
	to.addFlags(cmd)
	cmd.ValidArgsFunction = completeScope(&to, "region", "zone", "worker")
	cmd.Flags().DurationVar(&dur, "for", 0, "end the drain automatically after this time (default: until undrained)")
	cmd.Flags().DurationVar(&over, "over", 0, "decrease new traffic linearly to zero over this time (default: at once)")
	cmd.Flags().StringVar(&reason, "reason", "", "reason, shown by status and in the audit log")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the remaining capacity and change nothing")
	cmd.Flags().BoolVar(&force, "force", false, "drain even if less remains than the spec requires")
	cmd.Flags().BoolVar(&override, "override-safety", false, "drain against the safety rules of the spec, in an emergency; needs --reason")
	cmd.Flags().StringVar(&drill, "drill", "", "the drill that the drain belongs to: one at a time, and only with --for")
	cmd.Flags().BoolVar(&replace, "replace", false, "replace an existing drain of the same name")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until no request is in flight there")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "stop waiting this long after the end of --over; the drain stays in force")
	return cmd
}

// drainPollInterval is how often drain --wait polls the requests in flight.
const drainPollInterval = time.Second

// waitUntilDrained returns once, after the end of over, two consecutive polls find no request in flight at path. It fails
// timeout after the end of over.
func waitUntilDrained(cmd *cobra.Command, to *adminTarget, path string, over, timeout time.Duration) error {
	whole, last, idle := time.Now().Add(over), int64(-1), 0
	deadline := whole.Add(timeout)
	for {
		n := int64(-1)
		err := to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
			st, err := c.GetStatus(ctx)
			if err == nil {
				n = countInFlight(st, path)
			}
			return err
		})
		if err != nil {
			return err
		}
		if n != last {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", path, formatInFlight(n))
		}
		if last = n; n == 0 && !time.Now().Before(whole) {
			idle++
		} else {
			idle = 0
		}
		if idle == 2 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s after %s: %s; the drain stays in force", path, timeout, formatInFlight(n))
		}
		select {
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		case <-time.After(drainPollInterval):
		}
	}
}

func formatInFlight(n int64) string {
	switch n {
	case -1:
		return "requests in flight are not reported"
	case 0:
		return "no request is in flight"
	case 1:
		return "1 request is in flight"
	}
	return fmt.Sprintf("%d requests are in flight", n)
}

// countInFlight counts the requests in flight at a region, zone or worker, or returns -1 if no tier reports them. A request is
// in flight both at its gateway and at its worker, so for a region the larger count is used.
func countInFlight(st *admin.Status, path string) int64 {
	parts := strings.Split(path, "/")
	for i := range st.Regions {
		r := &st.Regions[i]
		if r.Name != parts[0] {
			continue
		}
		relayed, running, some := int64(0), int64(0), false
		for k := range r.Gateways {
			relayed += r.Gateways[k].InFlight
		}
		for k := range r.Zones {
			z := &r.Zones[k]
			if len(parts) > 1 && z.Name != parts[1] || z.Instance == "" {
				continue
			}
			for _, w := range z.Workers {
				if len(parts) < 3 || w.Name == parts[2] {
					running, some = running+w.InFlight, true
				}
			}
		}
		switch {
		case !some && (len(parts) > 1 || r.Note != ""):
			return -1
		case len(parts) > 1:
			return running
		}
		return max(relayed, running)
	}
	return -1
}

// printDrainSchedule prints the share of new traffic that remains at five times of a gradual drain.
func printDrainSchedule(w io.Writer, over time.Duration) {
	if over <= 0 {
		return
	}
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "AFTER\tREMAINING NEW TRAFFIC")
		for i := range 5 {
			after := over * time.Duration(i) / 4
			fmt.Fprintf(t, "%s\t%s\n", after.Round(time.Millisecond), formatPercent(spec.DrainShare(time.Unix(0, 0), over, time.Unix(0, 0).Add(after))))
		}
	})
}

// formatDrainProgress returns the progress of a gradual drain, "" once it is complete.
func formatDrainProgress(d *admin.Drain, now time.Time) string {
	share := d.TrafficShare(now)
	if share <= 0 {
		return ""
	}
	return fmt.Sprintf("%s drained, complete at %s", formatPercent(1-share), d.At.Add(d.RampDuration()).Local().Format(time.TimeOnly))
}

// printDrainImpact prints the capacity that remains after a drain. Without all it prints only violated minimums.
func printDrainImpact(w io.Writer, x *admin.DrainImpact, all bool) {
	if x == nil {
		return
	}
	if all {
		fmt.Fprintf(w, "serving regions: %d now, %d after the drain\n", x.Regions, x.RegionsLeft)
		if x.Zones > 0 {
			fmt.Fprintf(w, "serving zones of the region: %d now, %d after the drain\n", x.Zones, x.ZonesLeft)
		}
		writeTable(w, func(t io.Writer) {
			fmt.Fprintln(t, "MODEL\tREADY\tAFTER\tPREFILL tok/s\tAFTER\tDEMAND tok/s\tWAIT\tAFTER")
			for i := range x.Models {
				m := &x.Models[i]
				fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", m.Name, m.Workers, m.WorkersLeft, formatCount(int64(m.Rate)), formatCount(int64(m.RateLeft)),
					formatCount(int64(m.Demand)), formatWait(m.WaitSeconds), formatWait(m.WaitLeftSeconds))
			}
		})
	}
	for _, b := range x.Below {
		if all {
			fmt.Fprintf(w, "would be refused without --force: %s\n", b)
		} else {
			fmt.Fprintf(w, "forced: %s\n", b)
		}
	}
}

func formatWait(s float64) string {
	if s < 0 {
		return "overload"
	}
	return formatSeconds(s)
}

func newUndrainCommand() *cobra.Command {
	var (
		to     adminTarget
		reason string
	)
	cmd := &cobra.Command{
		Use:     "undrain region|zone|worker NAME",
		Short:   "End the drain of a region, zone or worker",
		Long:    "End the drain of a region, zone or worker: it receives new requests again at once.\n\n" + drainScopeHelp,
		Example: "  spillway undrain region frankfurt",
		GroupID: "operate",
		Args:    checkScopeArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.EndDrain(ctx, args[1], reason)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s is no longer drained\n", args[0], args[1])
				printDrainNote(cmd, a)
				return nil
			})
		},
	}
	to.addFlags(cmd)
	cmd.ValidArgsFunction = completeScope(&to, "region", "zone", "worker")
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for the audit log")
	return cmd
}

func printDrainNote(cmd *cobra.Command, a *admin.DrainAnswer) {
	if a.Note != "" {
		fmt.Fprintln(cmd.OutOrStdout(), "note:", a.Note)
	}
}

// checkScopeArgs checks that the kind and the depth of the path agree, so that a typing error cannot drain a region instead
// of a zone.
func checkScopeArgs(cmd *cobra.Command, args []string) error {
	depth := map[string]int{"region": 1, "zone": 2, "worker": 3}
	if len(args) != 2 || depth[args[0]] == 0 {
		return newUsageError(cmd.Use, drainScopeHelp)
	}
	if got := countPathParts(args[1]); got != depth[args[0]] {
		return fmt.Errorf("%q does not name a %s: %s", args[1], args[0], drainScopeHelp)
	}
	return nil
}

// countPathParts counts the parts of a path. It returns 0 if one is empty.
func countPathParts(p string) int {
	depth, part := 0, 0
	for i := 0; i <= len(p); i++ {
		if i < len(p) && p[i] != '/' {
			part++
			continue
		}
		if part == 0 {
			return 0
		}
		depth, part = depth+1, 0
	}
	return depth
}
