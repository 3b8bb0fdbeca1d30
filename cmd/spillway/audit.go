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

func auditCommand() *cobra.Command {
	var (
		to     target
		output string
		last   int
	)
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who changed what, when and why; verify a node's audit log",
		Long: `Show who changed what, when and why: the newest 256 changes, as the global nodes have agreed on them. Each node with a
dir also appends every change to audit.log in it. Records are chained by hashes: ` + "`spillway audit verify FILE`" + ` finds one that
was altered, replaced or left out.`,
		Example: "  spillway audit -n 20\n  spillway audit -o json\n  spillway audit verify /var/lib/spillway/audit.log",
		GroupID: "operate",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no audit %q\nhint: verify FILE, or nothing", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.Audit(ctx)
				if err != nil {
					return err
				}
				if last > 0 && len(a.Records) > last {
					a.Records = a.Records[len(a.Records)-last:]
				}
				if output == "json" {
					return printJSON(cmd.OutOrStdout(), a)
				}
				printAudit(cmd.OutOrStdout(), a)
				return nil
			})
		},
	}
	to.flags(cmd)
	outputFlag(cmd, &output)
	cmd.Flags().IntVarP(&last, "last", "n", 0, "show only so many of the newest (default: all that are kept)")
	cmd.AddCommand(auditVerifyCommand())
	return cmd
}

func printAudit(w io.Writer, a *admin.AuditAnswer) {
	if len(a.Records) == 0 {
		fmt.Fprintln(w, "nothing was changed yet")
		return
	}
	table(w, func(t io.Writer) {
		fmt.Fprintln(t, "SEQ\tINDEX\tAT\tACTOR\tACTION\tSUBJECT\tREASON")
		for _, r := range a.Records {
			fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", r.Seq, r.Index, r.At.Format("2006-01-02 15:04:05Z07:00"), r.Actor, r.Action, orDash(r.Subject), orDash(r.Reason))
			for line := range strings.Lines(r.Detail) {
				fmt.Fprintf(t, "\t\t\t\t  %s\t\t\n", strings.TrimSuffix(line, "\n"))
			}
		}
	})
}

func auditVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "verify FILE",
		Short:   "Check that no record of an audit log was altered, replaced or left out",
		Example: "  spillway audit verify /var/lib/spillway/audit.log",
		Args:    exactly("FILE", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			records, torn, err := readAudit(args[0])
			if err != nil {
				return err
			}
			if err := consensus.Verify(records); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if len(records) == 0 {
				return fmt.Errorf("%s holds no record", args[0])
			}
			first, end := records[0], records[len(records)-1]
			fmt.Fprintf(cmd.OutOrStdout(), "whole: %d records, %d to %d\nhead %s\n", len(records), first.Seq, end.Seq, end.Hash)
			for _, n := range torn {
				fmt.Fprintf(cmd.OutOrStdout(), "note: line %d is no record: a crash cut it short, or somebody wrote it\n", n)
			}
			if first.Seq > 1 {
				fmt.Fprintf(cmd.OutOrStdout(), "note: it begins at record %d: the node had not seen the ones before\n", first.Seq)
			}
			return nil
		},
	}
}

// readAudit reads a file of records, one a line, and names the lines that are none.
func readAudit(name string) (out []consensus.Record, torn []int, err error) {
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
		var r consensus.Record
		if err := json.Unmarshal(line, &r); err != nil {
			torn = append(torn, n) // a crash in the middle of a write leaves such a line, and the record is written anew
			continue
		}
		out = append(out, r)
	}
}
