package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/explain"
)

func newExplainCommand() *cobra.Command {
	var (
		to      adminTarget
		output  string
		q       admin.ExplainQuery
		headers map[string]string
	)
	cmd := &cobra.Command{
		Use:   "explain [--from ADDR] --model MODEL",
		Short: "Explain where a request would be sent: every candidate of each tier with its predicted cost",
		Long: `Explain where a request would be sent: every candidate of each tier with its predicted cost. No request is sent and no state
changes. The candidate with * is chosen. Reason codes:
  global    nearest (lowest cost), planned (the plan moves this client area), pinned (the plan assigns this client
            network), weight, order and canary (by the spec), spread (no client location: hashed by capacity),
            all_drained and all_lost (no other region is left)
  regional  soonest (lowest cost), near_equal (drawn among those within the tie margin), cold_start (a zone has to load
            the model), last_resort (only draining or unreachable zones are left); spilled to another region:
            peer_sooner, no_local_capacity, region_drained; none_serves (no candidate), residency (the tenant may not be
            served in this region)
  local     the policy's own code, such as least_seconds (lowest predicted latency); without a worker: no_worker,
            no_pool, too_long (no worker can ever hold the request), busy (it waits in the queue)`,
		Example: `  spillway explain --from 198.51.100.10 --model llama-3.1-8b
  spillway explain --from 203.0.113.7 --model fast --tenant acme --prompt-tokens 8000
  spillway explain --from 203.0.113.7 --model best --session s-17 --header X-Cohort=beta
  spillway explain --model llama-3.1-8b --server unix:///run/spillway/zone.sock`,
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.Headers = canonicalizeHeaders(headers)
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.ExplainRequest(ctx, q)
				if err != nil {
					return err
				}
				if isStructured(output) {
					return printStructured(cmd.OutOrStdout(), output, a)
				}
				for i := range a.Records {
					printExplanation(cmd.OutOrStdout(), &a.Records[i])
				}
				return nil
			})
		},
	}
	to.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&q.From, "from", "", "address of the client; a global node needs it to choose a region")
	f.StringVar(&q.Model, "model", "", "model or alias")
	f.StringVar(&q.Service, "service", "", "DNS name that the client uses (default: the first service with the model)")
	f.StringVar(&q.Tenant, "tenant", "", "tenant of the request, for its residency and class")
	f.StringVar(&q.Class, "class", "", "interactive, standard or batch (default: the tenant's)")
	f.StringVar(&q.Session, "session", "", "session of the request; requests of a session use the same target of an alias")
	f.StringVar(&q.Target, "target", "", "target of the alias that the request requires (X-Spillway-Target)")
	f.StringToStringVar(&headers, "header", nil, "header of the request, NAME=VALUE, for targets with conditions")
	f.Int64Var(&q.PromptTokens, "prompt-tokens", 1000, "length of the prompt, in tokens")
	f.Int64Var(&q.MaxTokens, "max-tokens", 200, "maximum number of tokens to generate")
	panicOnError(cmd.MarkFlagRequired("model"))
	panicOnError(cmd.RegisterFlagCompletionFunc("model", completeOneName(&to, "model")))
	panicOnError(cmd.RegisterFlagCompletionFunc("tenant", completeOneName(&to, "tenant")))
	addOutputFlag(cmd, &output)
	return cmd
}

func canonicalizeHeaders(headers map[string]string) map[string][]string {
	out := http.Header{}
	for name, value := range headers {
		out.Add(name, value)
	}
	return out
}

func printExplanation(w io.Writer, r *explain.Explanation) {
	fmt.Fprintf(w, "%s (%s): %s\n", r.Tier, r.Node, r.Query)
	terms := listTermNames(r)
	writeTable(w, func(t io.Writer) {
		fmt.Fprint(t, "  \tCANDIDATE\tCOST")
		for _, n := range terms {
			fmt.Fprintf(t, "\t%s", strings.ToUpper(n))
		}
		fmt.Fprintln(t, "\tINELIGIBLE")
		for _, c := range r.Candidates {
			printCandidateRow(t, c, terms, c.Name == r.Chosen)
		}
	})
	chosen := r.Chosen
	if chosen == "" {
		chosen = "none"
	}
	reason := r.Reason
	if r.Policy != "" {
		reason += ", by " + r.Policy
	}
	fmt.Fprintf(w, "  chosen: %s (%s)\n", chosen, reason)
	for _, n := range r.Notes {
		fmt.Fprintf(w, "  note: %s\n", n)
	}
	fmt.Fprintln(w)
}

func printCandidateRow(t io.Writer, c explain.Candidate, terms []string, chosen bool) {
	mark := " "
	if chosen {
		mark = "*"
	}
	fmt.Fprintf(t, "  %s\t%s\t%s", mark, c.Name, formatTermSeconds(c.TotalSeconds(), len(c.Terms) > 0))
	for _, n := range terms {
		s, ok := sumTerm(c, n)
		fmt.Fprintf(t, "\t%s", formatTermSeconds(s, ok))
	}
	fmt.Fprintf(t, "\t%s\n", c.IneligibleReason)
}

// listTermNames lists the cost terms of all candidates in the order of their first appearance.
func listTermNames(r *explain.Explanation) []string {
	var names []string
	seen := map[string]bool{}
	for _, c := range r.Candidates {
		for _, t := range c.Terms {
			if !seen[t.Name] {
				seen[t.Name] = true
				names = append(names, t.Name)
			}
		}
	}
	return names
}

func sumTerm(c explain.Candidate, name string) (float64, bool) {
	var sum float64
	var found bool
	for _, t := range c.Terms {
		if t.Name == name {
			sum, found = sum+t.Seconds, true
		}
	}
	return sum, found
}

func formatTermSeconds(s float64, known bool) string {
	if !known {
		return "-"
	}
	return fmt.Sprintf("%.1fms", s*1000)
}

// panicOnError panics on errors that only a programming error in a command definition can cause.
func panicOnError(err error) {
	if err != nil {
		panic(err)
	}
}
