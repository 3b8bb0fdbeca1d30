package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

// switchOptions holds the flags of switch.
type switchOptions struct {
	target     adminTarget
	to, reason string
	over, hold time.Duration

	practice, dryRun, force, override, detach bool
}

func newSwitchCommand() *cobra.Command {
	var o switchOptions
	cmd := &cobra.Command{
		Use:   "switch REGION --to REGION",
		Short: "Move a region's clients elsewhere in checked steps; --practice moves them back",
		Long: `Move a region's clients elsewhere in checked steps. The region of --to must be able to serve all of them in addition to its own;
each client then goes where the plan serves it best. The steps:

  check   the remaining capacity and the safety rules, as drain --dry-run does, and the capacity of the target
  shift   new clients leave, linearly over --over
  verify  the target serves, and no DNS answer names the region
  drain   running requests finish, for up to 10 minutes
  hold    the region stays empty for --hold
  back    with --practice its clients return; otherwise it stays drained until undrained

The leader takes the steps and the replicated state has them, so the switch goes on when this command or the leader ends. If the target
cannot serve for 15 seconds, the switch is aborted and the clients return. A practice is a drill: it is refused while another drill, a
drain or a staged spec is in progress, and its drain ends by itself. ` + "`spillway drill stop-all --fleet`" + ` ends a practice at once; of a
switch that is no practice it stops the steps and leaves the clients where they are.

The same command again follows the switch that is in progress.`,
		Example: "  spillway switch frankfurt --to virginia --dry-run\n  spillway switch frankfurt --to virginia --over 10m --hold 30m --practice --reason 'quarterly practice'\n  spillway switch status\n  spillway switch abort --reason 'not today'",
		GroupID: "operate",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || o.to == "" {
				return newUsageError("switch REGION --to REGION", "--to names the region that must be able to serve the clients")
			}
			return o.runSwitch(cmd, args[0])
		},
	}
	o.target.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.to, "to", "", "the region that must be able to serve the clients (required)")
	f.DurationVar(&o.over, "over", 5*time.Minute, "shift new clients linearly over this time; 0: at once")
	f.DurationVar(&o.hold, "hold", 0, "keep the region empty for this time before the switch is done or moves back")
	f.BoolVar(&o.practice, "practice", false, "move the clients back after the hold")
	f.StringVar(&o.reason, "reason", "", "reason, shown by status and in the audit log")
	f.BoolVar(&o.dryRun, "dry-run", false, "check, and move nothing")
	f.BoolVar(&o.force, "force", false, "move even if too little capacity remains")
	f.BoolVar(&o.override, "override-safety", false, "move against the safety rules of the spec, in an emergency; needs --reason")
	f.BoolVar(&o.detach, "detach", false, "return once the switch has started")
	cmd.AddCommand(newSwitchStatusCommand(), newSwitchAbortCommand())
	return cmd
}

func (o *switchOptions) runSwitch(cmd *cobra.Command, from string) error {
	if o.over < 0 || o.hold < 0 {
		return fmt.Errorf("--over is %s and --hold is %s: write durations of zero or more, such as 10m", o.over, o.hold)
	}
	var a *admin.SwitchAnswer
	joined := false
	err := o.target.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) (err error) {
		if a, err = c.GetSwitch(ctx); err != nil {
			return err
		}
		if g := a.Switch; !o.dryRun && g != nil && g.Active && g.From == from && g.To == o.to && g.Practice == o.practice {
			joined = true
			return nil
		}
		a, err = c.ChangeSwitch(ctx, admin.SwitchRequest{
			From: from, To: o.to, Practice: o.practice, OverMS: o.over.Milliseconds(), HoldMS: o.hold.Milliseconds(), Reason: o.reason,
			DryRun: o.dryRun, Force: o.force, OverrideSafety: o.override,
		})
		return err
	})
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if o.dryRun {
		printSwitchCheck(w, from, o.to, a)
		return nil
	}
	if joined {
		fmt.Fprintf(w, "this switch is in progress since %s: following it\n", a.Switch.At.Local().Format(time.TimeOnly))
	}
	if o.detach {
		printSwitchStatus(w, a.Switch)
		return nil
	}
	return followSwitch(cmd, &o.target, a.Switch)
}

// printSwitchCheck prints the result of a dry run.
func printSwitchCheck(w io.Writer, from, to string, a *admin.SwitchAnswer) {
	fmt.Fprintf(w, "switch of %s to %s, dry run: nothing is moved\n", from, to)
	if x := a.Impact; x != nil {
		x.Below = nil // part of the problems
		printDrainImpact(w, x, true)
	}
	for _, p := range a.Problems {
		fmt.Fprintf(w, "problem: %s\n", p)
	}
	if len(a.Problems) == 0 {
		fmt.Fprintf(w, "%s can serve the clients of %s\n", to, from)
	}
}

const (
	// switchPollInterval is how often the progress of a switch is read.
	switchPollInterval = time.Second
	// switchReadPatience is how long reads may fail in a row before the command gives up. The switch goes on.
	switchReadPatience = time.Minute
)

// errSwitchAborted ends the command when the switch was aborted.
var errSwitchAborted = errors.New("the switch was aborted: `spillway audit` shows its steps")

// followSwitch prints each step of a switch until it ends. The switch goes on if the command does not.
func followSwitch(cmd *cobra.Command, to *adminTarget, g *admin.SwitchStatus) error {
	w := cmd.OutOrStdout()
	number, last, failingSince := g.Number, "", time.Time{}
	for {
		if g.Number != number {
			return fmt.Errorf("switch %d has ended, and switch %d from %s to %s is the last one: `spillway audit` shows the steps of both", number, g.Number, g.From, g.To)
		}
		if g.Step != last {
			printSwitchStep(w, g)
			last = g.Step
		}
		if !g.Active {
			if g.Step == "aborted" {
				return errSwitchAborted
			}
			return nil
		}
		select {
		case <-cmd.Context().Done():
			fmt.Fprintf(w, "the switch of %s goes on without this command, in step %s.\n`spillway switch status` shows it, `spillway switch abort` brings the clients back, and the same command again follows it.\n", g.From, g.Step)
			return cmd.Context().Err()
		case <-time.After(switchPollInterval):
		}
		next, err := readSwitch(cmd.Context(), to)
		switch {
		case err == nil && next != nil:
			g, failingSince = next, time.Time{}
		case cmd.Context().Err() != nil: // reported above
		case failingSince.IsZero():
			failingSince = time.Now()
		case time.Since(failingSince) > switchReadPatience:
			return fmt.Errorf("the progress cannot be read, and the switch of %s goes on in step %s: %w\nhint: `spillway switch status` shows it, at any global node", g.From, g.Step, err)
		}
	}
}

func readSwitch(ctx context.Context, to *adminTarget) (out *admin.SwitchStatus, err error) {
	err = to.callNode(ctx, func(ctx context.Context, c *admin.Client) error {
		a, err := c.GetSwitch(ctx)
		if err == nil {
			out = a.Switch
		}
		return err
	})
	return out, err
}

// switchStepTexts describes what each step waits for.
var switchStepTexts = map[string]string{
	"shift": "new clients leave", "verify": "checking the target and the answers", "drain": "running requests finish", "hold": "the region is empty",
	"back": "the drain has ended, clients return", "done": "done", "aborted": "aborted",
}

func printSwitchStep(w io.Writer, g *admin.SwitchStatus) {
	fmt.Fprintf(w, "%s  %-7s  %s", g.StepAt.Local().Format(time.TimeOnly), g.Step, switchStepTexts[g.Step])
	switch {
	case g.Step == "shift" && g.OverMS > 0:
		fmt.Fprintf(w, " over %s", time.Duration(g.OverMS)*time.Millisecond)
	case g.Step == "hold" && g.HoldMS > 0:
		fmt.Fprintf(w, " for %s", time.Duration(g.HoldMS)*time.Millisecond)
	}
	if g.Note != "" {
		fmt.Fprintf(w, " (%s)", g.Note)
	}
	fmt.Fprintln(w)
}

// printSwitchStatus prints a switch and what can be done about it.
func printSwitchStatus(w io.Writer, g *admin.SwitchStatus) {
	if g == nil {
		fmt.Fprintln(w, "no region was switched yet: `spillway switch REGION --to REGION --practice` tries it")
		return
	}
	kind := "switch"
	if g.Practice {
		kind = "practice"
	}
	fmt.Fprintf(w, "%s of %s to %s, by %s at %s", kind, g.From, g.To, dashIfEmpty(g.Actor), g.At.Local().Format(time.DateTime))
	if g.Reason != "" {
		fmt.Fprintf(w, ": %s", g.Reason)
	}
	fmt.Fprintln(w)
	printSwitchStep(w, g)
	switch {
	case g.Active && g.Drained:
		fmt.Fprintf(w, "%s gets %s of its new clients; `spillway switch abort` brings all back\n", g.From, formatPercent(g.Remaining))
	case g.Active:
		fmt.Fprintf(w, "%s is not drained\n", g.From)
	case g.Drained:
		fmt.Fprintf(w, "%s is drained: `spillway undrain region %s` brings its clients back\n", g.From, g.From)
	}
}

func newSwitchStatusCommand() *cobra.Command {
	var (
		to     adminTarget
		output string
	)
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the region switch in progress, or the last one",
		Example: "  spillway switch status\n  spillway switch status -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			g, err := readSwitch(cmd.Context(), &to)
			switch {
			case err != nil:
				return err
			case output == "json":
				return printJSON(cmd.OutOrStdout(), g)
			}
			printSwitchStatus(cmd.OutOrStdout(), g)
			return nil
		},
	}
	to.addFlags(cmd)
	addOutputFlag(cmd, &output)
	return cmd
}

func newSwitchAbortCommand() *cobra.Command {
	var (
		to     adminTarget
		reason string
	)
	cmd := &cobra.Command{
		Use:     "abort",
		Short:   "End the region switch in progress: its clients return at once",
		Example: "  spillway switch abort --reason 'not today'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.ChangeSwitch(ctx, admin.SwitchRequest{Abort: true, Reason: reason})
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "the switch of %s is aborted: its clients return\n", a.Switch.From)
				return nil
			})
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for the audit log")
	return cmd
}
