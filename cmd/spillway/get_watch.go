package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

// watchItems prints the items, then each item that is added, changes or is removed, until the command is interrupted.
func watchItems[T any](cmd *cobra.Command, o *getOptions, k *itemKind[T], args []string) error {
	watch := newItemWatch(k, o.output)
	connected := true
	for first := true; ; first = false {
		var items []T
		err := o.target.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) (err error) {
			items, err = listMatching(ctx, c, k, o, args)
			return err
		})
		switch {
		case cmd.Context().Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			if connected {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s no answer: the lines above may be out of date: %v\n", time.Now().Format(time.TimeOnly), err)
			}
			connected = false
		default:
			if !connected {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s answered again\n", time.Now().Format(time.TimeOnly))
			}
			connected = true
			if err := watch.printChanges(cmd.OutOrStdout(), items); err != nil {
				return err
			}
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(o.interval):
		}
	}
}

// itemWatch remembers what a watch has printed of each item.
type itemWatch[T any] struct {
	kind    *itemKind[T]
	table   *itemTable[T]
	printed map[string]string // version by name and position among items of that name
	titled  bool
}

func newItemWatch[T any](k *itemKind[T], output string) *itemWatch[T] {
	return &itemWatch[T]{kind: k, table: newItemTable(k.columns, output), printed: map[string]string{}}
}

// printChanges prints the items whose lines differ from those printed last, and the names of removed ones.
func (w *itemWatch[T]) printChanges(out io.Writer, items []T) error {
	var lines []tableLine
	if !w.titled {
		w.titled = true
		lines = append(lines, w.table.titleLine())
	}
	seen, count := make(map[string]string, len(items)), map[string]int{}
	for i := range items {
		name := w.kind.itemName(&items[i])
		key := fmt.Sprintf("%s\x00%d", name, count[name])
		count[name]++
		line := w.table.makeLine(&items[i])
		seen[key] = line.version
		if old, ok := w.printed[key]; !ok || old != line.version {
			lines = append(lines, line)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.printed)) {
		if _, ok := seen[key]; !ok {
			lines = append(lines, w.makeRemovedLine(key))
		}
	}
	w.printed = seen
	return w.table.printLines(out, lines)
}

func (w *itemWatch[T]) makeRemovedLine(key string) tableLine {
	name, _, _ := strings.Cut(key, "\x00")
	line := tableLine{cells: make([]string, len(w.table.columns))}
	for i := range line.cells {
		line.cells[i] = "-"
	}
	line.cells[0] = name
	if len(line.cells) > 1 {
		line.cells[1] = "removed"
	}
	return line
}

// addTextWatch adds --watch to a command that prints lines: it then repeats and prints the lines that differ.
func addTextWatch(cmd *cobra.Command) {
	var (
		watch    bool
		interval time.Duration
	)
	f := cmd.Flags()
	f.BoolVarP(&watch, "watch", "w", false, "print everything, then each line that changes, until interrupted")
	f.DurationVar(&interval, "interval", defaultWatchInterval, "time between two reads of --watch")
	once := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !watch {
			return once(cmd, args)
		}
		if interval < minWatchInterval {
			return newUsageMistake(fmt.Errorf("--interval is %s: the shortest is %s", interval, minWatchInterval))
		}
		out := cmd.OutOrStdout()
		defer cmd.SetOut(out)
		var printed map[string]bool
		for {
			var text bytes.Buffer
			cmd.SetOut(&text)
			err := once(cmd, args)
			switch {
			case cmd.Context().Err() != nil:
				return nil
			case err != nil && printed == nil:
				return err
			case err != nil:
				fmt.Fprintf(cmd.ErrOrStderr(), "%s no answer: the lines above may be out of date: %v\n", time.Now().Format(time.TimeOnly), err)
			default:
				if printed, err = printNewLines(out, text.String(), printed); err != nil {
					return err
				}
			}
			select {
			case <-cmd.Context().Done():
				return nil
			case <-time.After(interval):
			}
		}
	}
}

// printNewLines writes the lines of text that were not printed before. It returns the lines of text.
func printNewLines(out io.Writer, text string, printed map[string]bool) (map[string]bool, error) {
	now := map[string]bool{}
	for line := range strings.Lines(text) {
		now[line] = true
		if !printed[line] {
			if _, err := io.WriteString(out, line); err != nil {
				return nil, err
			}
		}
	}
	return now, nil
}
