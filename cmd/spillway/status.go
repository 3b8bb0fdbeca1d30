package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

func newStatusCommand() *cobra.Command {
	var (
		to      adminTarget
		output  string
		workers bool
		check   bool
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show regions, zones and workers with their health, load and capacity",
		Long: `Show regions, zones and workers with their health, load and capacity, as reported to the node that answers. Columns:
  STATE     of the reports: reporting, stale (shown as last reported), unreachable (no traffic is sent there) or unknown
            (no report yet); of a worker: ready, not ready with the cause, draining or unhealthy
  HEALTH    ready, degraded (a model has fewer ready workers than it should) or down (no ready worker)
  READY     ready workers and all workers of a model; +N warm: asleep, +N cold: could load the model
  WAIT      predicted queue wait of class standard
  KV FREE   free tokens of the KV caches`,
		Example: "  spillway status\n  spillway status --workers\n  spillway status --check\n  spillway status -o json",
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				s, err := c.GetStatus(ctx)
				if err != nil {
					return err
				}
				if isStructured(output) {
					err = printStructured(cmd.OutOrStdout(), output, s)
				} else {
					printStatus(cmd.OutOrStdout(), s, workers)
				}
				if problems := listProblems(s); err == nil && check && len(problems) > 0 {
					return errors.New("unhealthy: " + strings.Join(problems, "; "))
				}
				return err
			})
		},
	}
	to.addFlags(cmd)
	cmd.Flags().BoolVar(&check, "check", false, "exit with an error when a region is unreachable or has no ready worker")
	cmd.Flags().BoolVar(&workers, "workers", false, "show each worker")
	addOutputFlag(cmd, &output)
	return cmd
}

// listProblems lists the regions that cannot serve. A drained region is not a problem.
func listProblems(s *admin.Status) (out []string) {
	ready := false
	for i := range s.Regions {
		r := &s.Regions[i]
		has := slices.ContainsFunc(r.Models, func(m admin.ModelStatus) bool { return m.Ready > 0 })
		switch {
		case r.State == admin.StateUnreachable || r.State == admin.StateUnknown:
			out = append(out, "region "+r.Name+" is unreachable")
			continue
		case !has && !r.Draining:
			out = append(out, "region "+r.Name+" has no ready worker")
		}
		ready = ready || has
	}
	if !ready && len(out) == 0 {
		out = append(out, "no worker is ready")
	}
	return out
}

// formatSpecInForce returns the versions or the file of the spec in force.
func formatSpecInForce(s *admin.Status) string {
	switch f := s.SpecFile; {
	case f == nil:
		return fmt.Sprintf("spec v%d  plan %d, %s old", s.SpecVersion, s.PlanEpoch, formatAge(s.PlanAgeMS))
	case f.Path == "":
		return "standalone, no spec file: defaults are in force"
	default:
		return fmt.Sprintf("standalone, spec file %s of %s", f.Path, f.ChangedAt.Format(time.DateTime))
	}
}

// formatExpiry formats the expiry of a certificate.
func formatExpiry(at, now time.Time) string {
	date := at.UTC().Format(time.DateOnly)
	left := at.Sub(now)
	switch {
	case left <= 0:
		return "expired on " + date + ": replace it"
	case left < 48*time.Hour:
		return fmt.Sprintf("expires on %s, in %s: replace it", date, left.Round(time.Minute))
	}
	return fmt.Sprintf("expires on %s, in %d days", date, int(left/(24*time.Hour)))
}

func printStatus(w io.Writer, s *admin.Status, workers bool) {
	fmt.Fprintf(w, "%s (%s)  %s\n", s.Node, s.Role, formatSpecInForce(s))
	if r := s.Raft; r != nil {
		leader := "no leader: DNS and redirects follow the last plan"
		if r.Leader != "" {
			leader = "leader " + r.Leader
		}
		fmt.Fprintf(w, "raft: %s, this node is %s, term %d, applied %d, %d voters\n", leader, strings.ToLower(r.State), r.Term, r.Applied, len(r.Voters))
	}
	for _, b := range s.Basis {
		fmt.Fprintf(w, "config source: %s\n", b)
	}
	for _, c := range s.Certificates {
		fmt.Fprintf(w, "certificate: %s %s\n", c.Name, formatExpiry(c.ExpiresAt, time.Now()))
	}
	printStageLine(w, s.Stage)
	for _, d := range s.Drains {
		progress := formatDrainProgress(&d, time.Now())
		if progress != "" {
			progress = ", " + progress
		}
		fmt.Fprintf(w, "drain: %s%s%s%s\n", d.Path, formatDrainEnd(d.Until), progress, formatReasonAndActor(d.Reason, d.Actor))
	}
	for _, n := range s.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	fmt.Fprintln(w)

	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "NAME\tSTATE\tHEALTH\tAGE\tMODEL\tREADY\tRUNNING\tQUEUED\tWAIT\tPREFILL tok/s\tDECODE tok/s\tKV FREE tok")
		for _, r := range s.Regions {
			printRegionRows(t, r, workers)
		}
	})
	for _, r := range s.Regions {
		if r.Note != "" {
			fmt.Fprintf(w, "note: region %s: %s\n", r.Name, r.Note)
		}
	}
}

func printRegionRows(t io.Writer, r admin.RegionStatus, workers bool) {
	printModelRows(t, r.Name, formatState(r.State, r.Draining), formatHealth(r.State, r.Models), formatAge(r.AgeMS), r.Models)
	for _, z := range r.Zones {
		printModelRows(t, "  "+z.Name+" ("+z.Instance+")", formatState(z.State, z.Draining), formatHealth(z.State, z.Models), formatAge(z.AgeMS), z.Models)
		for _, wk := range z.Workers {
			if workers {
				printWorkerRow(t, wk)
			}
		}
	}
}

// printModelRows prints one line for each model of a region or zone, with its name, state and health on the first only.
func printModelRows(t io.Writer, name, state, health, age string, models []admin.ModelStatus) {
	if len(models) == 0 {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t-\t-\t-\t-\t-\t-\t-\t-\n", name, state, health, age)
	}
	for i, m := range models {
		if i > 0 {
			name, state, health, age = "", "", "", ""
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", name, state, health, age, m.Name, formatReadyCount(&m),
			m.Running, m.Queued, formatSeconds(m.WaitSeconds), formatCount(m.PrefillRate), formatCount(m.DecodeRate), formatCount(m.KVFree))
	}
}

// formatReadyCount formats ready and total workers as "1/3", followed by those that are asleep (warm) or could load the model
// (cold).
func formatReadyCount(m *admin.ModelStatus) string {
	s := fmt.Sprintf("%d/%d", m.Ready, m.Total)
	if m.Warm > 0 {
		s += fmt.Sprintf(" +%d warm", m.Warm)
	}
	if m.Cold > 0 {
		s += fmt.Sprintf(" +%d cold", m.Cold)
	}
	return s
}

// formatWorkerModels lists a worker's models, with the state of those that accept no requests.
func formatWorkerModels(w *admin.WorkerStatus) string {
	var out []string
	for _, m := range w.Models {
		if w.ModelStates[m] == "" {
			out = append(out, m)
		}
	}
	for _, m := range slices.Sorted(maps.Keys(w.ModelStates)) {
		out = append(out, m+" ("+w.ModelStates[m]+")")
	}
	return strings.Join(out, ",")
}

func printWorkerRow(t io.Writer, w admin.WorkerStatus) {
	state, reason := formatState(w.State, false), w.Reason
	if strings.HasPrefix(reason, admin.NotReady) {
		state, reason = reason, "" // the reason includes the state
	}
	if w.Source != "" && w.Source != "static" {
		state += ", from " + w.Source
	}
	if reason != "" && reason != w.State {
		state += " (" + reason + ")"
	}
	if w.Prefix != "" {
		state += ", cache " + w.Prefix
	}
	fmt.Fprintf(t, "    %s %s\t%s\t\t%s\t%s\t\t%d\t%d\t\t%s\t%s\t%s\n", w.Name, w.GPU, state, formatAge(w.ScrapeAgeMS), formatWorkerModels(&w),
		w.Running, w.Waiting, formatCount(int64(w.PrefillRate)), formatCount(int64(w.DecodeRate)), formatCount(w.KVFree))
}

// formatState returns a state for the table. The API uses other words, which earlier releases read.
func formatState(state string, draining bool) string {
	switch state {
	case admin.StateFresh:
		state = "reporting"
	case admin.StateUnreachable:
		state = "unreachable"
	case admin.StateStarting:
		state = "not ready"
	case admin.StateUnhealthy:
		state = "unhealthy"
	}
	if draining {
		return state + ", draining"
	}
	return state
}

// formatHealth returns the health of a region or zone by its models: down without any ready worker, degraded if a model has
// fewer ready workers than workers.
func formatHealth(state string, models []admin.ModelStatus) string {
	if state == admin.StateUnreachable || state == admin.StateUnknown {
		return "unknown"
	}
	health, ready := "ready", int64(0)
	for i := range models {
		ready += models[i].Ready
		if models[i].Ready < models[i].Total {
			health = "degraded"
		}
	}
	if ready == 0 {
		return "down"
	}
	return health
}

func formatDrainEnd(t time.Time) string {
	if t.IsZero() {
		return " until undrained"
	}
	return " until " + t.Local().Format(time.DateTime)
}

func formatReasonAndActor(reason, actor string) string {
	switch {
	case reason == "" && actor == "":
		return ""
	case reason == "":
		return " (by " + actor + ")"
	case actor == "":
		return " (" + reason + ")"
	}
	return fmt.Sprintf(" (%s, by %s)", reason, actor)
}

// formatAge formats a duration in milliseconds, rounded to about three digits.
func formatAge(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return d.String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// formatSeconds formats seconds, rounded to milliseconds.
func formatSeconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

// formatCount formats large numbers with the suffixes k and M.
func formatCount(n int64) string {
	switch {
	case n >= 10_000_000:
		return fmt.Sprintf("%.0fM", float64(n)/1e6)
	case n >= 1_000_000:
		return fmt.Sprintf("%.2fM", float64(n)/1e6)
	case n >= 10_000:
		return fmt.Sprintf("%.0fk", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}
