package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/regional/usage"
)

func usageCommand() *cobra.Command {
	var (
		output string
		by     []string
	)
	cmd := &cobra.Command{
		Use:   "usage DIR|FILE...",
		Short: "Sum what tenants used, from the records that gateways keep; verify the files",
		Long: `Sum what tenants used, from the files that gateways write when usage.dir is set. Each request counts once, also when files
overlap. Calls that pass unread, gRPC's and WebSockets, are counted in bytes. ` + "`spillway usage verify`" + ` says whether records are missing, stand twice, or cannot be read.`,
		Example: "  spillway usage /var/lib/spillway/usage\n  spillway usage --by day,tenant usage-*.jsonl -o json\n  spillway usage verify /var/lib/spillway/usage",
		GroupID: "operate",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := usage.Read(args, by)
			if err != nil {
				return err
			}
			rows := usageRows(r)
			if output == "json" {
				err = printJSON(cmd.OutOrStdout(), rows)
			} else {
				printUsage(cmd.OutOrStdout(), rows, by)
			}
			for _, line := range usageTrouble(r) {
				fmt.Fprintln(cmd.ErrOrStderr(), line)
			}
			return err
		},
	}
	outputFlag(cmd, &output)
	cmd.Flags().StringSliceVar(&by, "by", []string{"tenant", "model", "region"}, "split by "+strings.Join(usage.Parts(), ", "))
	cmd.AddCommand(usageVerifyCommand())
	return cmd
}

func usageVerifyCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "verify DIR|FILE...",
		Short:   "Say whether records of usage are missing, stand twice, or cannot be read",
		Example: "  spillway usage verify /var/lib/spillway/usage",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := usage.Read(args, nil)
			if err != nil {
				return err
			}
			if output == "json" {
				err = printJSON(cmd.OutOrStdout(), r)
			} else {
				printVerified(cmd.OutOrStdout(), r)
			}
			if err != nil {
				return err
			}
			if r.Missing > 0 || len(r.Bad) > 0 {
				return errors.New("the records are not whole\nhint: look for files that were left out, and at spillway_regional_usage_records_lost_total of the gateway")
			}
			return nil
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

func printVerified(w io.Writer, r *usage.Report) {
	fmt.Fprintf(w, "%d records in %d files\n", r.Records, r.Files)
	for _, line := range usageTrouble(r) {
		fmt.Fprintln(w, line)
	}
}

// usageRow is one line of a sum.
type usageRow struct {
	usage.Key
	usage.Total
}

func usageRows(r *usage.Report) []usageRow {
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
	table(w, func(t io.Writer) {
		for _, p := range by {
			fmt.Fprintf(t, "%s\t", strings.ToUpper(p))
		}
		fmt.Fprintln(t, "REQUESTS\tPROMPT\tCACHED\tCOMPLETION\tBYTES_IN\tBYTES_OUT\tDOLLARS")
		for _, r := range rows {
			parts := map[string]string{"tenant": r.Tenant, "model": r.Model, "region": r.Region, "day": r.Day}
			for _, p := range by {
				fmt.Fprintf(t, "%s\t", parts[p])
			}
			fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%d\t%d.%06d\n", r.Requests, r.Prompt, r.Cached, r.Completion, r.BytesIn, r.BytesOut, r.Micros/1e6, r.Micros%1e6)
		}
	})
}

// usageTrouble says what is odd about files, a line each.
func usageTrouble(r *usage.Report) (out []string) {
	if r.Missing > 0 {
		out = append(out, fmt.Sprintf("%d records are missing", r.Missing))
	}
	if r.Twice > 0 {
		out = append(out, fmt.Sprintf("%d records stand twice, and are counted once", r.Twice))
	}
	for _, f := range r.Torn {
		out = append(out, "the last line is not whole, as a kill leaves it: "+f)
	}
	for _, f := range r.Bad {
		out = append(out, "cannot be read: "+f)
	}
	return out
}
