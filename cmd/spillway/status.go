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

func statusCommand() *cobra.Command {
	var (
		to      target
		output  string
		workers bool
		check   bool
	)
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the tree of regions, zones and workers with their live capacity",
		Example: "  spillway status\n  spillway status --workers\n  spillway status --check\n  spillway status -o json",
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				s, err := c.Status(ctx)
				if err != nil {
					return err
				}
				if output == "json" {
					err = printJSON(cmd.OutOrStdout(), s)
				} else {
					printStatus(cmd.OutOrStdout(), s, workers)
				}
				if problems := problemsOf(s); err == nil && check && len(problems) > 0 {
					return errors.New("unhealthy: " + strings.Join(problems, "; "))
				}
				return err
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().BoolVar(&check, "check", false, "exit with an error when a region is unreachable or has no ready worker")
	cmd.Flags().BoolVar(&workers, "workers", false, "show each worker")
	outputFlag(cmd, &output)
	return cmd
}

// problemsOf lists what keeps a node's part of the fleet from serving. A drained region is not a problem.
func problemsOf(s *admin.Status) (out []string) {
	ready := false
	for i := range s.Regions {
		r := &s.Regions[i]
		has := slices.ContainsFunc(r.Models, func(m admin.ModelStatus) bool { return m.Ready > 0 })
		switch {
		case r.State == admin.StateLost || r.State == admin.StateUnknown:
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

// inForce is what a node goes by.
func inForce(s *admin.Status) string {
	switch f := s.SpecFile; {
	case f == nil:
		return fmt.Sprintf("spec v%d  plan %d, %s old", s.SpecVersion, s.PlanEpoch, age(s.PlanAgeMS))
	case f.Path == "":
		return "stands alone, no spec file: defaults are in force"
	default:
		return fmt.Sprintf("stands alone, spec file %s of %s", f.Path, f.ChangedAt.Format(time.DateTime))
	}
}

// expiry says when a certificate ends.
func expiry(at, now time.Time) string {
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
	fmt.Fprintf(w, "%s (%s)  %s\n", s.Node, s.Role, inForce(s))
	if r := s.Raft; r != nil {
		leader := "no leader: answering from the last plan"
		if r.Leader != "" {
			leader = "leader " + r.Leader
		}
		fmt.Fprintf(w, "raft: %s, this node is %s, term %d, applied %d, %d voters\n", leader, strings.ToLower(r.State), r.Term, r.Applied, len(r.Voters))
	}
	for _, b := range s.Basis {
		fmt.Fprintf(w, "runs by: %s\n", b)
	}
	for _, c := range s.Certificates {
		fmt.Fprintf(w, "certificate: %s %s\n", c.Name, expiry(c.ExpiresAt, time.Now()))
	}
	printStage(w, s.Stage)
	for _, d := range s.Drains {
		fmt.Fprintf(w, "drain: %s%s%s\n", d.Path, until(d.Until), because(d.Reason, d.Actor))
	}
	for _, n := range s.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	fmt.Fprintln(w)

	table(w, func(t io.Writer) {
		fmt.Fprintln(t, "NAME\tSTATE\tAGE\tMODEL\tREADY\tRUNNING\tQUEUED\tWAIT\tPREFILL tok/s\tDECODE tok/s\tKV FREE tok")
		for _, r := range s.Regions {
			regionRows(t, r, workers)
		}
	})
	for _, r := range s.Regions {
		if r.Note != "" {
			fmt.Fprintf(w, "note: region %s: %s\n", r.Name, r.Note)
		}
	}
}

func regionRows(t io.Writer, r admin.RegionStatus, workers bool) {
	row(t, r.Name, state(r.State, r.Draining), age(r.AgeMS), r.Models)
	for _, z := range r.Zones {
		row(t, "  "+z.Name+" ("+z.Instance+")", state(z.State, z.Draining), age(z.AgeMS), z.Models)
		for _, wk := range z.Workers {
			if workers {
				workerRow(t, wk)
			}
		}
	}
}

// row prints one line for each model of a subtree, with the name on the first only.
func row(t io.Writer, name, state, age string, models []admin.ModelStatus) {
	if len(models) == 0 {
		fmt.Fprintf(t, "%s\t%s\t%s\t-\t-\t-\t-\t-\t-\t-\t-\n", name, state, age)
	}
	for i, m := range models {
		if i > 0 {
			name, state, age = "", "", ""
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", name, state, age, m.Name, readyOf(&m),
			m.Running, m.Queued, seconds(m.WaitSeconds), count(m.PrefillRate), count(m.DecodeRate), count(m.KVFree))
	}
}

// readyOf is "1/3", with the workers that are asleep or could load the model behind it.
func readyOf(m *admin.ModelStatus) string {
	s := fmt.Sprintf("%d/%d", m.Ready, m.Total)
	if m.Warm > 0 {
		s += fmt.Sprintf(" +%d warm", m.Warm)
	}
	if m.Cold > 0 {
		s += fmt.Sprintf(" +%d cold", m.Cold)
	}
	return s
}

// workerModels names a worker's models, with the state of those that take no requests.
func workerModels(w *admin.WorkerStatus) string {
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

func workerRow(t io.Writer, w admin.WorkerStatus) {
	st, why := w.State, w.Reason
	if strings.HasPrefix(why, admin.NotReady) {
		st, why = why, "" // it says more than the state
	}
	if w.Source != "" && w.Source != "static" {
		st += ", by " + w.Source
	}
	if why != "" {
		st += " (" + why + ")"
	}
	if w.Prefix != "" {
		st += ", cache " + w.Prefix
	}
	fmt.Fprintf(t, "    %s %s\t%s\t%s\t%s\t\t%d\t%d\t\t%s\t%s\t%s\n", w.Name, w.GPU, st, age(w.ScrapeAgeMS), workerModels(&w),
		w.Running, w.Waiting, count(int64(w.PrefillRate)), count(int64(w.DecodeRate)), count(w.KVFree))
}

func state(s string, draining bool) string {
	if draining {
		return s + ", draining"
	}
	return s
}

func until(t time.Time) string {
	if t.IsZero() {
		return " until undrained"
	}
	return " until " + t.Local().Format(time.TimeOnly)
}

func because(reason, actor string) string {
	if reason == "" {
		return " (by " + actor + ")"
	}
	return fmt.Sprintf(" (%s, by %s)", reason, actor)
}

// age prints a duration in milliseconds with the precision a reader needs.
func age(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return d.String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// seconds prints a predicted time.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

// count prints large amounts with k and M, three digits of them.
func count(n int64) string {
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
