// Command mutants shows that the drills, the invariants and the tests of the cores notice defects. It changes one line of the
// product at a time with `go test -overlay`, which leaves the tree as it is, runs what should notice it, and prints a table: the
// mutant, its file and what caught it. A mutant that nothing catches makes it fail.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"text/tabwriter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := runMutants(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func runMutants(ctx context.Context) error {
	only := flag.String("only", "", "run the mutants whose name matches this regular expression")
	goTool := flag.String("go", "go", "the go command")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	r := &mutantRun{root: root, goTool: *goTool, sound: map[catcher]bool{}}
	var rows [][3]string
	missed := 0
	for i := range allMutants {
		m := &allMutants[i]
		if !pattern.MatchString(m.Name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%d of %d: %s\n", i+1, len(allMutants), m.Name)
		by, err := r.findCatcher(ctx, m)
		if err != nil {
			return err
		}
		if by == "" {
			by = "NOTHING"
			missed++
		}
		rows = append(rows, [3]string{m.Name, m.File, by})
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MUTANT\tFILE\tCAUGHT BY")
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\n", row[0], row[1], row[2])
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(rows) == 0 {
		return errors.New("no mutant has such a name")
	}
	fmt.Printf("%d mutants, %d caught\n", len(rows), len(rows)-missed)
	if missed > 0 {
		return fmt.Errorf("%d mutants are caught by nothing", missed)
	}
	return nil
}
