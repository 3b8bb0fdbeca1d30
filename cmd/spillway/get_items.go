package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

// itemKind is a kind of item that `spillway get` lists: where the items come from and how they are shown.
type itemKind[T any] struct {
	name        string // "regions"
	aliases     []string
	short, long string
	examples    string
	columns     []tableColumn[T]
	// itemName returns the name that arguments select: region, region/zone or region/zone/worker for those tiers.
	itemName func(*T) string
	list     func(context.Context, *admin.Client) ([]T, error)
	// footer prints remarks below the table; nil: none.
	footer func(io.Writer, []T)
}

// itemList is the form of the items for programs.
type itemList[T any] struct {
	Items []T `json:"items"`
}

// getOptions are the flags of a command that lists items.
type getOptions struct {
	target   adminTarget
	output   string
	sortBy   string
	watch    bool
	interval time.Duration
}

const (
	defaultWatchInterval = 2 * time.Second
	minWatchInterval     = 200 * time.Millisecond
)

// newGetItemsCommand returns the command that lists the items of a kind.
func newGetItemsCommand[T any](k itemKind[T]) *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:     k.name + " [NAME]...",
		Aliases: k.aliases,
		Short:   k.short,
		Long: k.short + ".\n\n" + k.long + "\n\nNAME is the name of an item, or of what contains it: `virginia` selects all of region virginia. A value of an unreachable\n" +
			"or unknown part is shown as -. Columns for --sort: " + strings.Join(listSortKeys(k.columns), ", ") + ".",
		Example: k.examples,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.watch {
				return watchItems(cmd, &o, &k, args)
			}
			var items []T
			err := o.target.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) (err error) {
				items, err = listMatching(ctx, c, &k, &o, args)
				return err
			})
			if err != nil {
				return err
			}
			return printItems(cmd.OutOrStdout(), &k, o.output, items)
		},
	}
	o.target.addFlags(cmd)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeNames(completionContext(cmd), &o.target, &k, prefix), cobra.ShellCompDirectiveNoFileComp
	}
	addOutputFlag(cmd, &o.output)
	f := cmd.Flags()
	f.StringVar(&o.sortBy, "sort", "", "sort by this column; -COLUMN for descending order")
	f.BoolVarP(&o.watch, "watch", "w", false, "print the table, then each item that changes, until interrupted")
	f.DurationVar(&o.interval, "interval", defaultWatchInterval, "time between two reads of --watch")
	panicOnError(cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(listSortKeys(k.columns), cobra.ShellCompDirectiveNoFileComp)))
	checkFormat := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case o.watch && isStructured(o.output):
			return newUsageMistake(fmt.Errorf("--watch prints tables: write -o table or -o wide with it, not -o %s", o.output))
		case o.interval < minWatchInterval:
			return newUsageMistake(fmt.Errorf("--interval is %s: the shortest is %s", o.interval, minWatchInterval))
		}
		return checkFormat(cmd, args)
	}
	return cmd
}

// listMatching returns the items that the arguments select, in the order of --sort.
func listMatching[T any](ctx context.Context, c *admin.Client, k *itemKind[T], o *getOptions, args []string) ([]T, error) {
	items, err := k.list(ctx, c)
	if err != nil {
		return nil, err
	}
	if items, err = selectItems(k, items, args); err != nil {
		return nil, err
	}
	return items, sortItems(items, k.columns, o.sortBy)
}

// maxNamesInError bounds how many known names an error lists.
const maxNamesInError = 8

// selectItems returns the items that the arguments name. Each argument must name one at least.
func selectItems[T any](k *itemKind[T], items []T, args []string) ([]T, error) {
	if len(args) == 0 {
		return items, nil
	}
	used := make([]bool, len(args))
	selected := slices.DeleteFunc(slices.Clone(items), func(item T) bool {
		name, found := k.itemName(&item), false
		for i, arg := range args {
			if name == arg || strings.HasPrefix(name, arg+"/") {
				used[i], found = true, true
			}
		}
		return !found
	})
	for i, arg := range args {
		if !used[i] {
			return nil, newUnknownItemError(k, items, arg)
		}
	}
	return selected, nil
}

func newUnknownItemError[T any](k *itemKind[T], items []T, arg string) error {
	var names []string
	for i := range items {
		names = append(names, k.itemName(&items[i]))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	more := ""
	if n := len(names) - maxNamesInError; n > 0 {
		names, more = names[:maxNamesInError], fmt.Sprintf(" and %d more", n)
	}
	hint := "there are none"
	if len(names) > 0 {
		hint = "there are " + strings.Join(names, ", ") + more
	}
	return fmt.Errorf("no %s is called %q\nhint: %s", strings.TrimSuffix(k.name, "s"), arg, hint)
}

func printItems[T any](w io.Writer, k *itemKind[T], output string, items []T) error {
	if isStructured(output) {
		if items == nil {
			items = []T{}
		}
		return printStructured(w, output, itemList[T]{items})
	}
	table := newItemTable(k.columns, output)
	lines := make([]tableLine, 0, len(items)+1)
	lines = append(lines, table.titleLine())
	for i := range items {
		lines = append(lines, table.makeLine(&items[i]))
	}
	if len(items) == 0 {
		_, err := fmt.Fprintf(w, "no %s\n", k.name)
		return err
	}
	if err := table.printLines(w, lines); err != nil {
		return err
	}
	if k.footer != nil {
		k.footer(w, items)
	}
	return nil
}
