package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

const drainScopes = `NAME is a path: a region (virginia), region/zone (virginia/a) or region/zone/worker (virginia/a/w1).`

func drainCommand() *cobra.Command {
	var (
		to     target
		dur    time.Duration
		reason string

		dryRun, force, replace, wait bool
		timeout                      time.Duration
	)
	cmd := &cobra.Command{
		Use:   "drain region|zone|worker NAME",
		Short: "Send nothing new to a region, a zone or a worker; what runs there finishes",
		Long: "Send nothing new to a region, a zone or a worker; what runs there finishes. A drain that leaves less than the spec demands " +
			"(steering.drain_min_regions, drain_min_zones, drain_min_capacity) is refused without --force, and one of what is drained " +
			"already without --replace.\n\n" + drainScopes,
		Example: `  spillway drain region frankfurt --dry-run
  spillway drain region frankfurt --for 30m --reason "kernel upgrade"
  spillway drain zone virginia/b --wait --timeout 15m
  spillway drain zone virginia/a
  spillway drain worker tokyo/b/w3 --reason "ECC errors"`,
		GroupID: "operate",
		Args:    scopeArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if dur < 0 {
				return fmt.Errorf("--for is %s: write a time to come, such as 30m, or leave it out to drain until undrained", dur)
			}
			r := admin.DrainRequest{Path: args[1], ForMS: dur.Milliseconds(), Reason: reason, DryRun: dryRun, Force: force, Replace: replace}
			err := to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.Drain(ctx, r)
				if err != nil {
					return err
				}
				if dryRun {
					fmt.Fprintf(cmd.OutOrStdout(), "drain of %s %s, dry run: nothing is changed\n", args[0], args[1])
				} else {
					fmt.Fprintf(cmd.OutOrStdout(), "draining %s %s; `spillway undrain %s %s` brings it back\n", args[0], args[1], args[0], args[1])
				}
				printImpact(cmd.OutOrStdout(), a.Impact, dryRun)
				printDrainNote(cmd, a)
				return nil
			})
			if err != nil || dryRun || !wait {
				return err
			}
			return waitDrained(cmd, &to, args[1], timeout)
		},
	}
	to.flags(cmd)
	cmd.Flags().DurationVar(&dur, "for", 0, "end the drain by itself after this long (default: until undrained)")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever finds it")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be left and change nothing")
	cmd.Flags().BoolVar(&force, "force", false, "drain even if less is left than the spec demands")
	cmd.Flags().BoolVar(&replace, "replace", false, "put this drain in place of one of the same name")
	cmd.Flags().BoolVar(&wait, "wait", false, "return when no request is in flight there any more")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "give up waiting after this long; the drain stays")
	return cmd
}

// waitEvery is how often a waiting drain asks what is in flight.
const waitEvery = time.Second

// waitDrained returns when nothing is in flight at path for two answers in a row, and fails after the timeout.
func waitDrained(cmd *cobra.Command, to *target, path string, timeout time.Duration) error {
	deadline, last, idle := time.Now().Add(timeout), int64(-1), 0
	for {
		n := int64(-1)
		err := to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
			st, err := c.Status(ctx)
			if err == nil {
				n = inFlightAt(st, path)
			}
			return err
		})
		if err != nil {
			return err
		}
		if n != last {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", path, inFlightText(n))
		}
		if last = n; n == 0 {
			idle++
		} else {
			idle = 0
		}
		if idle == 2 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s after %s: %s; the drain stays in force", path, timeout, inFlightText(n))
		}
		select {
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		case <-time.After(waitEvery):
		}
	}
}

func inFlightText(n int64) string {
	switch n {
	case -1:
		return "it does not report what is in flight"
	case 0:
		return "no request is in flight"
	case 1:
		return "1 request is in flight"
	}
	return fmt.Sprintf("%d requests are in flight", n)
}

// inFlightAt counts the requests in flight at a region, a zone or a worker; -1 where no tier reports them. A request that a
// gateway relays counts with its worker, so of a region the greater of both counts.
func inFlightAt(st *admin.Status, path string) int64 {
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

// printImpact shows what a drain leaves; after the fact only what falls below a minimum.
func printImpact(w io.Writer, x *admin.DrainImpact, all bool) {
	if x == nil {
		return
	}
	if all {
		fmt.Fprintf(w, "regions that take clients: %d, then %d\n", x.Regions, x.RegionsLeft)
		if x.Zones > 0 {
			fmt.Fprintf(w, "zones of the region that take requests: %d, then %d\n", x.Zones, x.ZonesLeft)
		}
		table(w, func(t io.Writer) {
			fmt.Fprintln(t, "MODEL\tREADY\tTHEN\tPREFILL tok/s\tTHEN\tDEMAND tok/s\tWAIT\tTHEN")
			for i := range x.Models {
				m := &x.Models[i]
				fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", m.Name, m.Workers, m.WorkersLeft, count(int64(m.Rate)), count(int64(m.RateLeft)),
					count(int64(m.Demand)), waitText(m.WaitSeconds), waitText(m.WaitLeftSeconds))
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

func waitText(s float64) string {
	if s < 0 {
		return "overload"
	}
	return seconds(s)
}

func undrainCommand() *cobra.Command {
	var (
		to     target
		reason string
	)
	cmd := &cobra.Command{
		Use:     "undrain region|zone|worker NAME",
		Short:   "Let a drained region, zone or worker take traffic again",
		Long:    "Let a drained region, zone or worker take traffic again.\n\n" + drainScopes,
		Example: "  spillway undrain region frankfurt",
		GroupID: "operate",
		Args:    scopeArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.Undrain(ctx, args[1], reason)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s takes traffic again\n", args[0], args[1])
				printDrainNote(cmd, a)
				return nil
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	return cmd
}

func printDrainNote(cmd *cobra.Command, a *admin.DrainAnswer) {
	if a.Note != "" {
		fmt.Fprintln(cmd.OutOrStdout(), "note:", a.Note)
	}
}

// scopeArgs checks that the scope named and the depth of the path agree, so that a slip of the hand cannot drain a
// region instead of a zone.
func scopeArgs(_ *cobra.Command, args []string) error {
	depth := map[string]int{"region": 1, "zone": 2, "worker": 3}
	if len(args) != 2 || depth[args[0]] == 0 {
		return fmt.Errorf("say what to drain: region NAME, zone REGION/ZONE or worker REGION/ZONE/WORKER")
	}
	if got := pathDepth(args[1]); got != depth[args[0]] {
		return fmt.Errorf("%q does not name a %s: %s", args[1], args[0], drainScopes)
	}
	return nil
}

// pathDepth counts the parts of a path, 0 when one is empty.
func pathDepth(p string) int {
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
