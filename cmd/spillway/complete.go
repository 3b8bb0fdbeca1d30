package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

const (
	// completionTimeout bounds how long a completion waits for a node.
	completionTimeout = time.Second
	// maxCompletions bounds the names that a completion returns.
	maxCompletions = 500
)

// completeNames returns the names of the items of a kind at the node that the flags select, those with a prefix.
func completeNames[T any](ctx context.Context, to *adminTarget, k *itemKind[T], prefix string) []cobra.Completion {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	var names []cobra.Completion
	err := to.callNode(ctx, func(ctx context.Context, c *admin.Client) error {
		items, err := k.list(ctx, c)
		if err != nil {
			return err
		}
		for i := range items {
			if name := k.itemName(&items[i]); strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
		return nil
	})
	if err != nil {
		return nil // the shell then offers nothing
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), maxCompletions)]
}

// completeNamesOf is completeNames by the word for one item: region, zone, worker, model or tenant.
func completeNamesOf(ctx context.Context, to *adminTarget, kind, prefix string) []cobra.Completion {
	switch kind {
	case "region":
		k := newRegionKind()
		return completeNames(ctx, to, &k, prefix)
	case "zone":
		k := newZoneKind()
		return completeNames(ctx, to, &k, prefix)
	case "worker":
		k := newWorkerKind()
		return completeNames(ctx, to, &k, prefix)
	case "model":
		k := newModelKind()
		return completeNames(ctx, to, &k, prefix)
	case "tenant":
		k := newTenantKind()
		return completeNames(ctx, to, &k, prefix)
	}
	return nil
}

// completeScope completes the arguments of drain, undrain, cordon and uncordon: a kind of kinds and a name of that kind.
func completeScope(to *adminTarget, kinds ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return kinds, cobra.ShellCompDirectiveNoFileComp
		case 1:
			return completeNamesOf(completionContext(cmd), to, args[0], prefix), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeOneName completes a name of a kind.
func completeOneName(to *adminTarget, kind string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeNamesOf(completionContext(cmd), to, kind, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

func completionContext(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}
