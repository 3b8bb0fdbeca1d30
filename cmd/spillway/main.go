// Command spillway contains every tier of the load balancer and the operators' commands, in one static binary: one
// file per command.
//
// It parses flags, connects packages and prints results. Routing, admission and steering decisions belong to the
// packages of the tiers, not here.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// version and commit are set by the linker; see the Makefile.
var (
	version = "development"
	commit  string
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runCommandLine(ctx, os.Args[1:]); err != nil {
		os.Exit(exitCodeOf(err))
	}
}

const (
	// exitUsage is the exit code for a mistake in the command line: nothing was sent.
	exitUsage = 2
	// exitUnreachable is the exit code if no node answers.
	exitUnreachable = 7
	// exitDenied is the exit code for a login that has expired, is not accepted or does not have the role.
	exitDenied = 8
	// exitWrongServer is the exit code if the node's tier or release does not support the command.
	exitWrongServer = 9
	// exitOutcomeUnknown is the exit code for a change that may or may not have been made.
	exitOutcomeUnknown = 5
)

func exitCodeOf(err error) int {
	if errors.As(err, new(*unknownOutcomeError)) {
		return exitOutcomeUnknown
	}
	if e := (*exitCodeError)(nil); errors.As(err, &e) {
		return e.code
	}
	return 1
}

// runCommandLine executes one command line and prints its error, if any, with the prefix "spillway:".
func runCommandLine(ctx context.Context, args []string) error {
	root := newRootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, errAlreadyReported) {
		fmt.Fprintln(root.ErrOrStderr(), "spillway:", err)
	}
	return err
}

// errAlreadyReported makes a command exit with 1 when its messages have been printed already.
var errAlreadyReported = errors.New("already reported")

// rejectUnknownCommand reports an unknown subcommand of cmd and suggests the nearest one.
func rejectUnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "`" + cmd.CommandPath() + " --help` lists the commands"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean `" + cmd.CommandPath() + " " + near[0] + "`?"
	}
	return fmt.Errorf("unknown command %q for %q\nhint: %s", args[0], cmd.CommandPath(), hint)
}

// newUsageError reports missing or surplus arguments: the usage line of the command and a hint, which may be empty.
func newUsageError(usage, hint string) error {
	if hint != "" {
		hint = "\nhint: " + hint
	}
	return newUsageMistake(errors.New("usage: spillway " + usage + hint))
}

// addDeprecatedFlag adds the earlier name of a flag for one release. Both names set the same value.
func addDeprecatedFlag(f *pflag.FlagSet, earlier, name string) {
	flag := *f.Lookup(name)
	flag.Name, flag.Shorthand, flag.Usage = earlier, "", "earlier name of --"+name
	flag.Deprecated = "deprecated: use --" + name + "; removed in the next release"
	f.AddFlag(&flag)
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "spillway",
		Short: "A hierarchical, multi-region load balancer for GPU inference",
		Long: `Spillway sends each inference request to the region, zone and GPU with the lowest predicted latency.

Serve running engines:  spillway up --worker URL
Try a demo:             spillway demo
Run one tier:           spillway global|regional|local -c FILE
Inspect:                spillway status, spillway explain
Change:                 spillway apply, spillway drain, spillway undrain

Exit codes: 0 success, 1 error, 2 mistake in the command line, 5 unknown outcome: a change was sent and no answer came back,
so it may or may not be in force; the message then names the command that shows it. 7 no node answers, 8 the login has
expired or lacks the role, 9 the node's tier or release does not support the command.`,
		Version:       readBuildInfo().format(), // of --version
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          rejectUnknownCommand,
		// The edit distance, in characters, within which a command is suggested: "stauts" suggests "status".
		SuggestionsMinimumDistance: 2,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddGroup(
		&cobra.Group{ID: "start", Title: "Start here:"},
		&cobra.Group{ID: "run", Title: "Run one process:"},
		&cobra.Group{ID: "operate", Title: "Operate:"},
		&cobra.Group{ID: "prepare", Title: "Prepare:"},
	)
	root.AddCommand(
		newSwitchCommand(),
		newUpCommand(), newDemoCommand(),
		newGlobalCommand(), newRegionalCommand(), newLocalCommand(), newWorkerCommand(), newRegisterCommand(),
		newGetCommand(), newDescribeCommand(), newContextCommand(),
		newStatusCommand(), newConsoleCommand(), newExplainCommand(), newTraceCommand(), newReplayCommand(), newNotifyCommand(), newReportCommand(), newPlanCommand(), newApplyCommand(), newDiffCommand(), newPromoteCommand(), newRollbackCommand(), newDrainCommand(), newUndrainCommand(), newCordonCommand(), newUncordonCommand(), newLoadCommand(), newSimulateCommand(), newDrillCommand(), newPlanCapacityCommand(), newTracesCommand(),
		newMembersCommand(), newSnapshotCommand(), newRecoverCommand(), newAuditCommand(), newUsageCommand(), newDNSSECCommand(), newTicketsCommand(), newLogLevelCommand(),
		newConfigCommand(), newCertsCommand(), newVersionCommand(), newFaultCommand(), newManCommand(),
	)
	markUsageMistakes(root)
	return root
}

// writeTable aligns tab-separated rows and writes them without trailing spaces.
func writeTable(w io.Writer, rows func(io.Writer)) {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	rows(t)
	t.Flush()
	for line := range bytes.Lines(b.Bytes()) {
		w.Write(append(bytes.TrimRight(line, " \n"), '\n'))
	}
}
