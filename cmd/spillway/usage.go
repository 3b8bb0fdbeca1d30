package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/regional/billing"
)

func newUsageCommand() *cobra.Command {
	var (
		output string
		by     []string
	)
	cmd := &cobra.Command{
		Use:   "usage DIR|FILE...",
		Short: "Sum the usage of tenants from the usage records of gateways; verify the files",
		Long: `Sum the usage of tenants from the files that gateways write if usage.dir is set. Each request counts once, even if files
overlap. Calls that Spillway does not parse (gRPC and WebSockets) are counted in bytes. ` + "`spillway usage verify`" + ` reports
missing, duplicate and unreadable records.`,
		Example: "  spillway usage /var/lib/spillway/usage\n  spillway usage --by day,tenant usage-*.jsonl -o json\n  spillway usage verify /var/lib/spillway/usage",
		GroupID: "operate",
		Args:    requireMinArgs("usage DIR|FILE...", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := billing.ReadFiles(args, by)
			if err != nil {
				return err
			}
			rows := sortUsageRows(r)
			if isStructured(output) {
				err = printStructured(cmd.OutOrStdout(), output, rows)
			} else {
				printUsage(cmd.OutOrStdout(), rows, by)
			}
			for _, line := range listUsageProblems(r) {
				fmt.Fprintln(cmd.ErrOrStderr(), line)
			}
			return err
		},
	}
	addOutputFlag(cmd, &output)
	cmd.Flags().StringSliceVar(&by, "by", []string{"tenant", "model", "region"}, "group by "+strings.Join(billing.GroupingKeys(), ", "))
	cmd.AddCommand(newUsageVerifyCommand())
	return cmd
}

func newUsageVerifyCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "verify DIR|FILE...",
		Short:   "Report missing, duplicate and unreadable usage records",
		Example: "  spillway usage verify /var/lib/spillway/usage",
		Args:    requireMinArgs("usage verify DIR|FILE...", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := billing.ReadFiles(args, nil)
			if err != nil {
				return err
			}
			if isStructured(output) {
				err = printStructured(cmd.OutOrStdout(), output, r)
			} else {
				printVerification(cmd.OutOrStdout(), r)
			}
			if err != nil {
				return err
			}
			if r.Missing > 0 || len(r.BadLines) > 0 {
				return errors.New("the records are incomplete\nhint: check that all files are given, and spillway_regional_usage_records_lost_total of the gateway")
			}
			return nil
		},
	}
	addOutputFlag(cmd, &output)
	return cmd
}

func printVerification(w io.Writer, r *billing.UsageReport) {
	fmt.Fprintf(w, "%d records in %d files\n", r.Records, r.Files)
	for _, line := range listUsageProblems(r) {
		fmt.Fprintln(w, line)
	}
}

// usageRow is one row of the table.
type usageRow struct {
	billing.TotalKey
	billing.Total
}

func sortUsageRows(r *billing.UsageReport) []usageRow {
	rows := make([]usageRow, 0, len(r.Totals))
	for k, t := range r.Totals {
		rows = append(rows, usageRow{k, t})
	}
	slices.SortFunc(rows, func(a, b usageRow) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Region, b.Region))
	})
	return rows
}

func printUsage(w io.Writer, rows []usageRow, by []string) {
	writeTable(w, func(t io.Writer) {
		for _, p := range by {
			fmt.Fprintf(t, "%s\t", strings.ToUpper(p))
		}
		fmt.Fprintln(t, "REQUESTS\tPROMPT\tCACHED\tCOMPLETION\tBYTES_IN\tBYTES_OUT\tDOLLARS")
		for _, r := range rows {
			keys := map[string]string{"tenant": r.Tenant, "model": r.Model, "region": r.Region, "day": r.Day}
			for _, p := range by {
				fmt.Fprintf(t, "%s\t", keys[p])
			}
			fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%d\t%d.%06d\n", r.Requests, r.Prompt, r.Cached, r.Completion, r.BytesIn, r.BytesOut, r.Micros/1e6, r.Micros%1e6)
		}
	})
}

// listUsageProblems describes missing, duplicate and unreadable records, one line each.
func listUsageProblems(r *billing.UsageReport) (out []string) {
	if r.Missing > 0 {
		out = append(out, fmt.Sprintf("%d records are missing", r.Missing))
	}
	if r.Duplicates > 0 {
		out = append(out, fmt.Sprintf("%d records are duplicates and are counted once", r.Duplicates))
	}
	for _, f := range r.Torn {
		out = append(out, "the last line is incomplete, because the gateway was killed while writing: "+f)
	}
	for _, f := range r.BadLines {
		out = append(out, "cannot be read: "+f)
	}
	return out
}
