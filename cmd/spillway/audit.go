package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
)

func newAuditCommand() *cobra.Command {
	var (
		to     adminTarget
		output string
		last   int
	)
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show the audit log: who changed what, when and why; verify an audit file",
		Long: `Show the audit log: who changed what, when and why. The Raft cluster stores the newest 256 changes. Each node with a dir
also appends every change to the file audit.log in it. Records form a hash chain: ` + "`spillway audit verify FILE`" + ` reports
records that were altered, replaced or removed.`,
		Example: "  spillway audit -n 20\n  spillway audit -o json\n  spillway audit verify /var/lib/spillway/audit.log",
		GroupID: "operate",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return newUsageError("audit [verify FILE]", "")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.ListAudit(ctx)
				if err != nil {
					return err
				}
				if last > 0 && len(a.Records) > last {
					a.Records = a.Records[len(a.Records)-last:]
				}
				if isStructured(output) {
					return printStructured(cmd.OutOrStdout(), output, a)
				}
				printAuditRecords(cmd.OutOrStdout(), a)
				return nil
			})
		},
	}
	to.addFlags(cmd)
	addOutputFlag(cmd, &output)
	cmd.Flags().IntVarP(&last, "last", "n", 0, "show this many of the newest records (default: all that are stored)")
	cmd.AddCommand(newAuditVerifyCommand())
	return cmd
}

func printAuditRecords(w io.Writer, a *admin.AuditAnswer) {
	if len(a.Records) == 0 {
		fmt.Fprintln(w, "no changes yet")
		return
	}
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "SEQ\tINDEX\tAT\tACTOR\tACTION\tSUBJECT\tREASON")
		for _, r := range a.Records {
			fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", r.Seq, r.Index, r.At.Format("2006-01-02 15:04:05Z07:00"), r.Actor, r.Action, dashIfEmpty(r.Subject), dashIfEmpty(r.Reason))
			for line := range strings.Lines(r.Detail) {
				fmt.Fprintf(t, "\t\t\t\t  %s\t\t\n", strings.TrimSuffix(line, "\n"))
			}
		}
	})
}

func newAuditVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "verify FILE",
		Short:   "Check that no record of an audit file was altered, replaced or removed",
		Example: "  spillway audit verify /var/lib/spillway/audit.log",
		Args:    requireArgs("audit verify FILE", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			records, torn, err := readAuditLog(args[0])
			if err != nil {
				return err
			}
			if err := consensus.VerifyAudit(records); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if len(records) == 0 {
				return fmt.Errorf("%s contains no record", args[0])
			}
			first, end := records[0], records[len(records)-1]
			fmt.Fprintf(cmd.OutOrStdout(), "intact: %d records, %d to %d\nlast hash %s\n", len(records), first.Seq, end.Seq, end.Hash)
			for _, n := range torn {
				fmt.Fprintf(cmd.OutOrStdout(), "note: line %d is not a record: a write was interrupted by a crash, or the file was edited\n", n)
			}
			if first.Seq > 1 {
				fmt.Fprintf(cmd.OutOrStdout(), "note: the file begins with record %d: the node joined after the earlier ones\n", first.Seq)
			}
			return nil
		},
	}
}

// readAuditLog reads a file with one record per line. torn lists the numbers of lines that are not records.
func readAuditLog(name string) (out []consensus.AuditRecord, torn []int, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	in := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, torn, nil
		}
		if err != nil {
			return nil, nil, err
		}
		var r consensus.AuditRecord
		if err := json.Unmarshal(line, &r); err != nil {
			torn = append(torn, n) // a crash during a write leaves such a line; the record is written again at the next start
			continue
		}
		out = append(out, r)
	}
}
