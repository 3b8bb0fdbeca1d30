package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker; see the Makefile.
var version = "development"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		os.Exit(1)
	}
}

// run executes one command line and prints its error, if any, the way every command does.
func run(ctx context.Context, args []string) error {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, errQuiet) {
		fmt.Fprintln(root.ErrOrStderr(), "spillway:", err)
	}
	return err
}

// errQuiet ends a command unsuccessfully when everything has been said already.
var errQuiet = errors.New("already reported")

// knownVerb says what a mistyped verb was probably meant to be.
func knownVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "`spillway --help` lists the verbs"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean `spillway " + near[0] + "`?"
	}
	return fmt.Errorf("there is no verb %q\nhint: %s", args[0], hint)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "spillway",
		Short: "A hierarchical, multi-region load balancer for GPU inference",
		Long: `Spillway sends each inference request to the region, the zone and the GPU where it will finish soonest.

In front of engines:  spillway up --worker URL
Try it:         spillway demo
Run a tier:     spillway global|regional|local -c FILE
Look:           spillway status, spillway explain
Change:         spillway apply, spillway drain, spillway undrain`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          knownVerb,
		// One slip more than cobra's zero: "statos" is meant to be "status".
		SuggestionsMinimumDistance: 2,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddGroup(
		&cobra.Group{ID: "start", Title: "Start here:"},
		&cobra.Group{ID: "run", Title: "Run a part:"},
		&cobra.Group{ID: "operate", Title: "Operate:"},
		&cobra.Group{ID: "prepare", Title: "Prepare:"},
	)
	root.AddCommand(
		upCommand(), demoCommand(),
		globalCommand(), regionalCommand(), localCommand(), workerCommand(), registerCommand(),
		getCommand(),
		statusCommand(), explainCommand(), planCommand(), applyCommand(), promoteCommand(), rollbackCommand(), drainCommand(), undrainCommand(), loadCommand(), simulateCommand(), planCapacityCommand(),
		membersCommand(), snapshotCommand(), recoverCommand(), auditCommand(), usageCommand(), dnssecCommand(), ticketsCommand(),
		configCommand(), certsCommand(), versionCommand(),
	)
	return root
}
