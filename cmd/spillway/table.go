package main

import (
	"bytes"
	"io"
	"text/tabwriter"
)

// writeTable aligns tab-separated rows and writes them without trailing spaces.
func writeTable(w io.Writer, rows func(io.Writer)) {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	rows(t)
	t.Flush()
	for line := range bytes.Lines(b.Bytes()) {
		w.Write(append(bytes.TrimRight(line, " \n"), '\n'))
	}
}
