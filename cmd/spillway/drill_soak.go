package main

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/chaos/drill/soak"
)

// drillSoakOptions holds the flags of drill soak.
type drillSoakOptions struct {
	from            uint64
	seeds, parallel int
	show            bool
}

func newDrillSoakCommand() *cobra.Command {
	var o drillSoakOptions
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Run random drills in the simulator, and see that no faults break an invariant",
		Long: `Run random drills in the simulator: up to four faults on a small fleet, each drill from its seed alone. Every run is judged by the invariants
that hold under any faults. For a seed that fails, the command that replays it is printed; the same seed gives the same run.`,
		Example: "  spillway drill soak\n  spillway drill soak --from 1001 --seeds 100000\n  spillway drill soak --from 267 --seeds 1 --show",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.seeds < 1 || o.parallel < 1 {
				return newUsageError("drill soak [--from N] [--seeds N] [--parallel N]", "--seeds and --parallel are 1 or more")
			}
			return o.runSoak(cmd)
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&o.from, "from", 1, "the first seed")
	f.IntVar(&o.seeds, "seeds", 1000, "how many seeds")
	f.IntVar(&o.parallel, "parallel", runtime.GOMAXPROCS(0), "how many run at a time")
	f.BoolVar(&o.show, "show", false, "print the drill of each seed")
	return cmd
}

func (o *drillSoakOptions) runSoak(cmd *cobra.Command) error {
	w := cmd.OutOrStdout()
	begun := time.Now()
	report, end := startProgress(cmd.ErrOrStderr(), "soak")
	done := 0
	totals, err := soak.RunSeeds(cmd.Context(), o.from, o.seeds, o.parallel, func(r soak.SeedResult) bool {
		done++
		report(float64(done) / float64(o.seeds))
		o.printSeed(w, &r)
		return true
	})
	end()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d seeds from %d in %s: %d failed; %d facts compared, %d of %d requests due from the first fault on harmed\n",
		totals.Seeds, o.from, time.Since(begun).Round(time.Second/10), totals.Failed, totals.Checked, totals.Harmed, totals.Requests)
	if totals.Failed > 0 {
		return errAlreadyReported
	}
	return nil
}

func (o *drillSoakOptions) printSeed(w io.Writer, r *soak.SeedResult) {
	if o.show {
		fmt.Fprintf(w, "%s", drill.FormatFile(soak.MakeDrill(r.Seed)))
	}
	for _, b := range r.Broken {
		fmt.Fprintf(w, "seed %d: %s\n", r.Seed, b)
	}
	if len(r.Broken) > 0 {
		fmt.Fprintf(w, "replay: %s\n", soak.ReplayCommand(r.Seed))
	}
}
