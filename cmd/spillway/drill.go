package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/chaos/drill/archive"
	"github.com/spillway-lb/spillway/chaos/drill/virtual"
	"github.com/spillway-lb/spillway/internal/admin"
)

// Exit codes of drills, in addition to 0 (passed) and 1 (failed, or the command could not run).
const (
	exitForbidden   = 3
	exitVoid        = 4
	exitInterrupted = 6
)

// exitCodeError ends the command with a code of its own.
type exitCodeError struct {
	error
	code int
}

func (e *exitCodeError) Unwrap() error { return e.error }

// outcomeError is the error of a run's outcome; nil if it passed.
func outcomeError(o drill.Outcome) error {
	switch o {
	case drill.Passed:
		return nil
	case drill.Void:
		return &exitCodeError{errAlreadyReported, exitVoid}
	case drill.Interrupted:
		return &exitCodeError{errAlreadyReported, exitInterrupted}
	}
	return errAlreadyReported
}

func newDrillCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "Break something on purpose, predict what happens, and see that it holds",
		Long: `Break something on purpose, predict what happens, and see that it holds. A drill is a file that states a hypothesis, a load and
faults with their times. It runs in the simulator in seconds (--virtual) or on a fleet of processes on this machine. Each run is
judged from one merged log, and stored with a report (Markdown, JSON and one HTML page) in the folder of --dir.

Exit codes: 0 passed, 1 failed (the hypothesis, or a fault that was not cleared) or the command could not run, 3 a safety rule
forbids the run, 4 void (the machine was too busy to judge), 6 interrupted.`,
		Example: "  spillway drill list\n  spillway drill plan region-loss\n  spillway drill run region-loss --virtual\n  spillway drill report last -o html > report.html",
		GroupID: "operate",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := rejectUnknownCommand(cmd, args); err != nil {
				return err
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(
		newDrillListCommand(), newDrillShowCommand(), newDrillFaultsCommand(), newDrillCheckCommand(), newDrillPlanCommand(), newDrillRunCommand(), newDrillReplayCommand(),
		newDrillReportCommand(), newDrillVerifyCommand(), newDrillAbortCommand(), newDrillStopAllCommand(), newDrillAllowCommand(), newDrillSoakCommand(),
	)
	return cmd
}

// addRunsFlag adds the folder of runs.
func addRunsFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "drill-runs", "folder of runs and their reports")
}

// readDrill reads a drill of the catalogue, or the file of -f.
func readDrill(usage, file string, args []string) (*drill.DrillFile, error) {
	if (file != "") == (len(args) == 1) {
		return nil, newUsageError(usage, "`spillway drill list` lists the drills of the catalogue, such as region-loss")
	}
	if file == "" {
		return drill.FindDrill(args[0])
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the drill: %w", err)
	}
	return drill.ParseFile(file, text)
}

func newDrillShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show NAME",
		Short:   "Print the file of a drill, to change and run with -f",
		Example: "  spillway drill show region-loss > mine.txt",
		Args:    requireArgs("drill show NAME", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := drill.ReadDrillText(args[0])
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		},
	}
}

func newDrillFaultsCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "faults",
		Short:   "List the faults that a drill may name, with targets and parameters",
		Example: "  spillway drill faults",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all := drill.StepKinds()
			if isStructured(output) {
				return printStructured(cmd.OutOrStdout(), output, all)
			}
			for _, in := range all {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", in.Kind, in.Summary)
				if len(in.Scopes) > 0 {
					fmt.Fprintf(cmd.OutOrStdout(), "    target: %s\n", strings.Trim(fmt.Sprint(in.Scopes), "[]"))
				}
				for _, q := range in.Params {
					fmt.Fprintf(cmd.OutOrStdout(), "    %s (%s, default %s): %s\n", q.Name, q.Unit, dashIfEmpty(q.Default), q.Summary)
				}
			}
			return nil
		},
	}
	addOutputFlag(cmd, &output)
	return cmd
}

func newDrillCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "check FILE",
		Short:   "Check a drill file, and print it in its formatted form",
		Example: "  spillway drill check mine.txt",
		Args:    requireArgs("drill check FILE", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := readDrill("drill check FILE", args[0], nil)
			if err == nil {
				_, err = cmd.OutOrStdout().Write(drill.FormatFile(f))
			}
			return err
		},
	}
}

func newDrillReportCommand() *cobra.Command {
	var dir, output string
	cmd := &cobra.Command{
		Use:     "report ID",
		Short:   "Print the report of a run: Markdown, JSON or one HTML page",
		Example: "  spillway drill report last\n  spillway drill report 0003-region-loss -o html > report.html",
		Args:    requireArgs("drill report ID", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a := archive.Open(dir)
			e, err := a.FindRun(args[0])
			if err != nil {
				return err
			}
			l, predicted, chain, err := a.ReadRun(e.ID)
			if err != nil {
				return err
			}
			r, err := drill.NewReport(l, chain, predicted)
			if err != nil {
				return err
			}
			return writeDrillReport(cmd.OutOrStdout(), r, output)
		},
	}
	addRunsFlag(cmd, &dir)
	cmd.Flags().StringVarP(&output, "output", "o", "md", "md, json or html")
	return cmd
}

func writeDrillReport(w io.Writer, r *drill.Report, output string) error {
	switch output {
	case "md":
		return r.WriteMarkdown(w)
	case "json":
		return r.WriteJSON(w)
	case "html":
		return r.WritePage(w)
	}
	return fmt.Errorf("unknown output %q: write -o md, -o json or -o html", output)
}

func newDrillVerifyCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "verify [ID]",
		Short: "Verify that stored runs are unchanged and judge them again",
		Long: `Verify that stored runs are unchanged and judge them again: the hashes in each log, that each run follows from the one before it, and
that the outcome in the index is what the log shows. Without an ID all runs are verified.`,
		Example: "  spillway drill verify\n  spillway drill verify last",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return verifyDrills(cmd.OutOrStdout(), archive.Open(dir), args)
		},
	}
	addRunsFlag(cmd, &dir)
	return cmd
}

func verifyDrills(w io.Writer, a *archive.Archive, args []string) error {
	entries, err := a.Entries()
	if err != nil {
		return err
	}
	if len(args) == 1 {
		e, err := a.FindRun(args[0])
		if err != nil {
			return err
		}
		entries = []archive.Entry{e}
	}
	bad := false
	for _, e := range entries {
		problems, err := a.VerifyRun(e.ID)
		if err != nil {
			return err
		}
		bad = bad || len(problems) > 0
		if len(problems) == 0 {
			fmt.Fprintf(w, "%s: verified, %s\n", e.ID, e.Outcome)
		}
		for _, p := range problems {
			fmt.Fprintf(w, "%s: %s\n", e.ID, p)
		}
	}
	if len(entries) == 0 {
		fmt.Fprintln(w, "no runs yet: `spillway drill run NAME --virtual` makes one")
	}
	if bad {
		return errAlreadyReported
	}
	return nil
}

func newDrillAbortCommand() *cobra.Command {
	var dir, reason string
	cmd := &cobra.Command{
		Use:   "abort ID",
		Short: "End a run that is going on: its faults are cleared first",
		Long: `End a run that is going on. Its controller clears every fault, verifies that, and ends with the outcome INTERRUPTED. A run that was ended is
never resumed. If the controller is gone, its faults have ended by themselves, because they are leases.`,
		Example: "  spillway drill abort 0004-region-loss --reason 'an incident elsewhere'",
		Args:    requireArgs("drill abort ID", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := archive.Open(dir).AbortRun(args[0], reason); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s ends as soon as its controller reads this, within a second; its faults are cleared first.\n", args[0])
			return nil
		},
	}
	addRunsFlag(cmd, &dir)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the report")
	return cmd
}

func newDrillStopAllCommand() *cobra.Command {
	var (
		dir, reason string
		to          adminTarget
		fleet       bool
	)
	cmd := &cobra.Command{
		Use:   "stop-all --reason TEXT [--fleet]",
		Short: "End every run and forbid new ones, until `drill allow`",
		Long: `End every run in the folder of --dir and forbid new ones. With --fleet the lever is in the replicated state of a running
installation instead: it ends the drains of drills and refuses every new drain, of operators too. Drains that operators started stay.`,
		Example: "  spillway drill stop-all --reason 'incident 42'\n  spillway drill stop-all --fleet --reason 'incident 42'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.TrimSpace(reason) == "" {
				return newUsageError("drill stop-all --reason TEXT", "the reason is shown to every operator who starts a drill")
			}
			if fleet {
				return moveStopLever(cmd, &to, admin.StopLeverRequest{Stop: true, Reason: reason})
			}
			if err := archive.Open(dir).PullLever(reason); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "every run ends within a second, and none may start. `spillway drill allow` allows runs again.")
			return nil
		},
	}
	addRunsFlag(cmd, &dir)
	addFleetFlags(cmd, &to, &fleet)
	cmd.Flags().StringVar(&reason, "reason", "", "why: required")
	return cmd
}

// addFleetFlags adds --fleet and the connection to a node.
func addFleetFlags(cmd *cobra.Command, to *adminTarget, fleet *bool) {
	to.addFlags(cmd)
	cmd.Flags().BoolVar(fleet, "fleet", false, "the lever of a running installation instead of the folder's")
}

// moveStopLever pulls or releases the lever of a running installation.
func moveStopLever(cmd *cobra.Command, to *adminTarget, r admin.StopLeverRequest) error {
	return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
		a, err := c.SetStopLever(ctx, r)
		switch {
		case err != nil:
			return err
		case a.Stopped:
			fmt.Fprintf(cmd.OutOrStdout(), "drills and drains are stopped: drains of drills have ended, and new drains are refused. `spillway drill allow --fleet` allows them again.\n")
		default:
			fmt.Fprintln(cmd.OutOrStdout(), "drills and drains are allowed.")
		}
		return nil
	})
}

func newDrillAllowCommand() *cobra.Command {
	var (
		dir, reason string
		to          adminTarget
		fleet       bool
	)
	cmd := &cobra.Command{
		Use:     "allow",
		Short:   "Allow runs again after `drill stop-all`",
		Example: "  spillway drill allow\n  spillway drill allow --fleet",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if fleet {
				return moveStopLever(cmd, &to, admin.StopLeverRequest{Reason: reason})
			}
			if err := archive.Open(dir).ReleaseLever(); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "runs may start.")
			return nil
		},
	}
	addRunsFlag(cmd, &dir)
	addFleetFlags(cmd, &to, &fleet)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit log of --fleet")
	return cmd
}

// checkDrillAllowed reports the safety rule that forbids a run, if any.
func checkDrillAllowed(a *archive.Archive) error {
	if reason := a.LeverReason(); reason != "" {
		return &exitCodeError{fmt.Errorf("no run may start: stop-all: %s\nhint: `spillway drill allow` allows runs again", reason), exitForbidden}
	}
	return nil
}

// predictDrill runs a drill in the simulator.
func predictDrill(ctx context.Context, f *drill.DrillFile, seed uint64) (*drill.EventLog, error) {
	if why := virtual.Unsupported(f); why != "" {
		return nil, errors.New("it cannot be predicted: " + why)
	}
	return virtual.Run(ctx, f, virtual.Config{Seed: seed, Version: version})
}
