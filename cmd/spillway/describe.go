package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

// fleetFacts is what a node reports that descriptions draw from. Parts that the node's tier does not have are nil.
type fleetFacts struct {
	status *admin.Status
	spec   *spec.Spec
	plan   *admin.PlanAnswer
	audit  *admin.AuditAnswer
	now    time.Time
}

// itemDescriber describes items of one kind.
type itemDescriber struct {
	kind, example string
	// names lists the items of the kind; write describes one. write returns false if there is no such item.
	names func(*fleetFacts) []string
	write func(io.Writer, *fleetFacts, string) bool
}

func newDescribeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "describe region|zone|worker|model|tenant NAME",
		Short:   "Describe one region, zone, worker, model or tenant: state, causes, drains, plan and last changes",
		Example: "  spillway describe region virginia\n  spillway describe worker virginia/a/w1\n  spillway describe model llama-3.1-8b",
		GroupID: "operate",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return newUsageError(cmd.Use, "")
			}
			return newUsageError(cmd.Use, fmt.Sprintf("%q is none of these", args[0]))
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	for _, d := range []itemDescriber{
		{"region", "virginia", listRegionNames, describeRegion},
		{"zone", "virginia/a", listZoneNames, describeZone},
		{"worker", "virginia/a/w1", listWorkerNames, describeWorker},
		{"model", "llama-3.1-8b", listModelItemNames, describeModel},
		{"tenant", "acme", listTenantNames, describeTenant},
	} {
		cmd.AddCommand(newDescribeItemCommand(d))
	}
	return cmd
}

func newDescribeItemCommand(d itemDescriber) *cobra.Command {
	var to adminTarget
	use := d.kind + " NAME"
	cmd := &cobra.Command{
		Use:     use,
		Short:   "Describe one " + d.kind + ": state with its causes, load, drains, plan and last changes",
		Example: "  spillway describe " + d.kind + " " + d.example,
		Args:    requireArgs("describe "+use, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				facts, err := collectFacts(ctx, c)
				if err != nil {
					return err
				}
				var out bytes.Buffer
				if !d.write(&out, facts, args[0]) {
					k := itemKind[string]{name: d.kind + "s", itemName: func(s *string) string { return *s }}
					return newUnknownItemError(&k, d.names(facts), args[0])
				}
				_, err = cmd.OutOrStdout().Write(out.Bytes())
				return err
			})
		},
	}
	to.addFlags(cmd)
	cmd.ValidArgsFunction = completeOneName(&to, d.kind)
	return cmd
}

// collectFacts reads everything that descriptions show.
func collectFacts(ctx context.Context, c *admin.Client) (*fleetFacts, error) {
	f := &fleetFacts{now: time.Now()}
	var err error
	if f.status, err = c.GetStatus(ctx); err != nil {
		return nil, err
	}
	if f.spec, err = fetchSpec(ctx, c); err != nil {
		return nil, err
	}
	if f.plan, err = c.GetPlan(ctx, 0); err != nil && !isNotOffered(err) {
		return nil, err
	}
	if f.audit, err = c.ListAudit(ctx); err != nil && !isNotOffered(err) {
		return nil, err
	}
	return f, nil
}

// isNotOffered reports whether a node refused a call that its tier does not have, or that has no answer yet.
func isNotOffered(err error) bool {
	e := (*admin.Error)(nil)
	return errors.As(err, &e) && (e.Status == http.StatusNotImplemented || e.Status == http.StatusServiceUnavailable || e.Status == http.StatusNotFound || e.Status == http.StatusForbidden)
}

func writeFact(w io.Writer, name, text string) {
	if text != "" {
		fmt.Fprintf(w, "%-12s %s\n", name+":", text)
	}
}

// writeSection writes indented lines below a title, nothing if there are none.
func writeSection(w io.Writer, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "%s:\n", title)
	for _, line := range lines {
		fmt.Fprintf(w, "  %s\n", line)
	}
}

func writeModelTable(w io.Writer, models []admin.ModelStatus) {
	if len(models) == 0 {
		return
	}
	fmt.Fprintln(w, "Models:")
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "  NAME\tREADY\tRUNNING\tQUEUED\tWAIT\tBACKLOG tok\tPREFILL tok/s\tDECODE tok/s\tKV USED\tHEADROOM tok/s")
		for i := range models {
			m := &models[i]
			fmt.Fprintf(t, "  %s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Name, formatReadyCount(m), m.Running, m.Queued, formatSeconds(m.WaitSeconds),
				formatCount(m.Backlog), formatCount(m.PrefillRate), formatCount(m.DecodeRate), newShareCell(m.KVTotal-m.KVFree, m.KVTotal).text, formatCount(m.Headroom))
		}
	})
}

// writeDrains writes the drains of a path, of what contains it and of its parts.
func writeDrains(w io.Writer, f *fleetFacts, path string) {
	var lines []string
	for i := range f.status.Drains {
		d := &f.status.Drains[i]
		if !isSameOrWithin(d.Path, path) && !isSameOrWithin(path, d.Path) {
			continue
		}
		line := d.Path + formatDrainEnd(d.Until) + formatReasonAndActor(d.Reason, d.Actor)
		if progress := formatDrainProgress(d, f.now); progress != "" {
			line += ", " + progress
		}
		lines = append(lines, line)
	}
	writeSection(w, "Drains", lines)
}

// isSameOrWithin reports whether path is outer or a part of it.
func isSameOrWithin(path, outer string) bool {
	return path == outer || strings.HasPrefix(path, outer+"/")
}

// maxDescribedChanges bounds the changes that a description lists.
const maxDescribedChanges = 5

// writeLastChanges writes the newest changes by operators that name a path, or a name in the spec.
func writeLastChanges(w io.Writer, f *fleetFacts, matches func(*admin.AuditRecord) bool) {
	if f.audit == nil {
		return
	}
	var lines []string
	for i := len(f.audit.Records) - 1; i >= 0 && len(lines) < maxDescribedChanges; i-- {
		r := &f.audit.Records[i]
		if matches(r) {
			lines = append(lines, fmt.Sprintf("%s  %s %s%s", r.At.UTC().Format(time.RFC3339), r.Action, r.Subject, formatReasonAndActor(r.Reason, r.Actor)))
		}
	}
	slices.Reverse(lines)
	writeSection(w, "Last changes", lines)
}

// changesOf matches the changes of a path and of its parts.
func changesOf(path string) func(*admin.AuditRecord) bool {
	return func(r *admin.AuditRecord) bool {
		return isSameOrWithin(r.Subject, path) || r.Subject != "" && isSameOrWithin(path, r.Subject)
	}
}

// changesNaming matches the changes of the spec whose differences name an element of a list: models[acme].
func changesNaming(list, name string) func(*admin.AuditRecord) bool {
	return func(r *admin.AuditRecord) bool { return strings.Contains(r.Detail, list+"["+name+"]") }
}

func listItemNames[T any](items []T, name func(*T) string) (names []string) {
	for i := range items {
		names = append(names, name(&items[i]))
	}
	return names
}
