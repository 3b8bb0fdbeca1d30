package main

import (
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/chaos/load"
)

// tracesOptions holds the flags of traces.
type tracesOptions struct {
	output, dir   string
	asJSON, check bool
}

func newTracesCommand() *cobra.Command {
	o := tracesOptions{}
	cmd := &cobra.Command{
		Use:   "traces",
		Short: "List the public traces of workloads: source, licence, checksum, and whether each file is in the folder",
		Long: `List the public traces that workloads read: size, SHA-256, licence, source and what was changed in the original. With a
folder, from --traces or ` + load.TracesVariable + `, it also compares every file with its checksum.

The files are not part of Spillway: each has the licence of its source. Workloads w6 to w10 need none of them.`,
		Example: "  spillway traces\n  spillway traces --traces /srv/traces --check",
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.listTraces(cmd.OutOrStdout()) },
	}
	addOutputFlag(cmd, &o.output)
	addTracesFlag(cmd, &o.dir)
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "the same as -o json")
	cmd.Flags().BoolVar(&o.check, "check", false, "exit with 1 if a file is missing or differs")
	return cmd
}

// listedTrace is one row of the list.
type listedTrace struct {
	load.PublicTrace
	State load.TraceState `json:"state,omitempty"` // empty without a folder
}

func (o *tracesOptions) listTraces(out io.Writer) error {
	if o.check && o.dir == "" {
		return errors.New("--check compares files in a folder, and none is given\nhint: use --traces DIR or set " + load.TracesVariable)
	}
	var rows []listedTrace
	damaged := 0
	for _, p := range load.PublicTraces() {
		row := listedTrace{PublicTrace: p}
		if o.dir != "" {
			var err error
			if row.State, err = p.CheckIn(o.dir); err != nil {
				return err
			}
			if row.State != load.TraceIntact {
				damaged++
			}
		}
		rows = append(rows, row)
	}
	if o.asJSON {
		o.output = outputJSON
	}
	if isStructured(o.output) {
		if err := printStructured(out, o.output, rows); err != nil {
			return err
		}
	} else {
		o.printTraces(out, rows)
	}
	if o.check && damaged > 0 {
		return fmt.Errorf("%d of %d public traces are missing or differ in %s: experiments with them cannot run or have other results\nhint: copy those files from their source; `spillway traces` shows each", damaged, len(rows), o.dir)
	}
	return nil
}

// printTraces writes a table of the files, and below it what they are, by source.
func (o *tracesOptions) printTraces(out io.Writer, rows []listedTrace) {
	writeTable(out, func(t io.Writer) {
		fmt.Fprintln(t, "FILE\tBYTES\tLICENCE\tSTATE\tSHA-256")
		for _, r := range rows {
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\n", r.Name, r.Size, r.Licence, formatOrDash(r.State != "", r.State), r.SHA256)
		}
	})
	for i, r := range rows {
		if i == 0 || r.Source != rows[i-1].Source || r.Changes != rows[i-1].Changes {
			fmt.Fprintf(out, "\nsource:  %s\nchanges: %s\n", r.Source, r.Changes)
		}
		fmt.Fprintf(out, "  %s: %s\n", path.Base(r.Name), r.Title)
	}
	if o.dir == "" {
		fmt.Fprintf(out, "\nNo folder is given, so no file was checked: use --traces DIR or set %s.\n", load.TracesVariable)
	}
}
