package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/chaos/drill/archive"
	"github.com/spillway-lb/spillway/chaos/drill/virtual"
)

// listedDrill is one drill of the catalogue with its last run of each way.
type listedDrill struct {
	Name  string   `json:"name"`
	Title string   `json:"title"`
	Ways  []string `json:"ways"`
	// LiveOnly is why the simulator cannot carry it.
	LiveOnly string         `json:"live_only,omitempty"`
	Virtual  *archive.Entry `json:"last_virtual,omitempty"`
	Live     *archive.Entry `json:"last_live,omitempty"`
}

func newDrillListCommand() *cobra.Command {
	var dir, output string
	var coverage, runs bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the drills of the catalogue, and when each was last run",
		Long: `List the drills of the catalogue. --coverage shows for each when it was last run in the simulator and live, with the outcome, and what
was never run. --runs lists the stored runs.`,
		Example: "  spillway drill list\n  spillway drill list --coverage\n  spillway drill list --runs",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a := archive.Open(dir)
			if runs {
				return listDrillRuns(cmd.OutOrStdout(), a, output)
			}
			rows, err := listDrills(a)
			if err != nil {
				return err
			}
			if isStructured(output) {
				return printStructured(cmd.OutOrStdout(), output, rows)
			}
			writeTable(cmd.OutOrStdout(), func(t io.Writer) { writeDrillRows(t, rows, coverage) })
			return nil
		},
	}
	addRunsFlag(cmd, &dir)
	addOutputFlag(cmd, &output)
	cmd.Flags().BoolVar(&coverage, "coverage", false, "show when each drill was last run, and with what outcome")
	cmd.Flags().BoolVar(&runs, "runs", false, "list the stored runs instead")
	return cmd
}

func listDrills(a *archive.Archive) (out []listedDrill, err error) {
	all, err := drill.LoadCatalogue()
	if err != nil {
		return nil, err
	}
	entries, err := a.Entries()
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		d := listedDrill{Name: f.Name, Title: f.Title, LiveOnly: virtual.Unsupported(f), Ways: []string{drill.WayVirtual, drill.WayLive}}
		if d.LiveOnly != "" {
			d.Ways = d.Ways[1:]
		}
		for i := range entries {
			switch e := &entries[i]; {
			case e.Drill != f.Name:
			case e.Way == drill.WayVirtual:
				d.Virtual = e
			default:
				d.Live = e
			}
		}
		out = append(out, d)
	}
	return out, nil
}

func writeDrillRows(t io.Writer, rows []listedDrill, coverage bool) {
	if coverage {
		fmt.Fprintln(t, "NAME\tVIRTUAL\tLIVE")
		for _, d := range rows {
			never := "never"
			if d.LiveOnly != "" {
				never = "live only"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\n", d.Name, describeLastRun(d.Virtual, never), describeLastRun(d.Live, "never"))
		}
		return
	}
	fmt.Fprintln(t, "NAME\tTITLE\tRUNS")
	for _, d := range rows {
		ways := "virtual, live"
		if d.LiveOnly != "" {
			ways = "live only: " + d.LiveOnly
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", d.Name, d.Title, ways)
	}
}

func describeLastRun(e *archive.Entry, never string) string {
	if e == nil {
		return never
	}
	return fmt.Sprintf("%s, %s ago", e.Outcome, formatRunAge(time.Since(e.Ended)))
}

// formatRunAge formats an age in its largest unit.
func formatRunAge(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%.0fm", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0fh", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

func listDrillRuns(w io.Writer, a *archive.Archive, output string) error {
	entries, err := a.Entries()
	if err != nil {
		return err
	}
	if isStructured(output) {
		return printStructured(w, output, entries)
	}
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "ID\tWAY\tSEED\tOUTCOME\tENDED")
		for _, e := range entries {
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", e.ID, e.Way, e.Seed, e.Outcome, e.Ended.Format("2006-01-02 15:04:05"))
		}
	})
	return nil
}
