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

func explainCommand() *cobra.Command {
	var (
		to      target
		output  string
		q       admin.ExplainQuery
		headers map[string]string
	)
	cmd := &cobra.Command{
		Use:   "explain [--from ADDR] --model M",
		Short: "Replay one decision through all three tiers, with every candidate and its cost in seconds",
		Example: `  spillway explain --from 198.51.100.10 --model llama-3.1-8b
  spillway explain --from 203.0.113.7 --model fast --tenant acme --prompt-tokens 8000
  spillway explain --from 203.0.113.7 --model best --session s-17 --header X-Cohort=beta
  spillway explain --model llama-3.1-8b --server unix:///run/spillway/zone.sock`,
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.Headers = canonical(headers)
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.Explain(ctx, q)
				if err != nil {
					return err
				}
				if output == "json" {
					return printJSON(cmd.OutOrStdout(), a)
				}
				for i := range a.Records {
					printRecord(cmd.OutOrStdout(), &a.Records[i])
				}
				return nil
			})
		},
	}
	to.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&q.From, "from", "", "the client's address; a global node needs it to choose a region")
	f.StringVar(&q.Model, "model", "", "model or alias")
	f.StringVar(&q.Service, "service", "", "the DNS name the client uses (default: the first that serves the model)")
	f.StringVar(&q.Tenant, "tenant", "", "ask as this tenant, for its residency and class")
	f.StringVar(&q.Class, "class", "", "interactive, standard or batch (default: the tenant's)")
	f.StringVar(&q.Session, "session", "", "the request's session, which keeps it to an alias's target")
	f.StringVar(&q.Target, "target", "", "the target that the caller insists on (X-Spillway-Target)")
	f.StringToStringVar(&headers, "header", nil, "a header of the request, NAME=VALUE, for targets with conditions")
	f.Int64Var(&q.PromptTokens, "prompt-tokens", 1000, "length of the prompt, in tokens")
	f.Int64Var(&q.MaxTokens, "max-tokens", 200, "most tokens to generate")
	must(cmd.MarkFlagRequired("model"))
	outputFlag(cmd, &output)
	return cmd
}

func canonical(headers map[string]string) map[string][]string {
	out := http.Header{}
	for name, value := range headers {
		out.Add(name, value)
	}
	return out
}

func printRecord(w io.Writer, r *explain.Record) {
	fmt.Fprintf(w, "%s (%s): %s\n", r.Tier, r.Node, r.Query)
	terms := termNames(r)
	table(w, func(t io.Writer) {
		fmt.Fprint(t, "  \tCANDIDATE\tCOST")
		for _, n := range terms {
			fmt.Fprintf(t, "\t%s", strings.ToUpper(n))
		}
		fmt.Fprintln(t, "\tDROPPED")
		for _, c := range r.Candidates {
			candidateRow(t, c, terms, c.Name == r.Chosen)
		}
	})
	chosen := r.Chosen
	if chosen == "" {
		chosen = "none"
	}
	why := r.Reason
	if r.Policy != "" {
		why += ", by " + r.Policy
	}
	fmt.Fprintf(w, "  chosen: %s (%s)\n", chosen, why)
	for _, n := range r.Notes {
		fmt.Fprintf(w, "  note: %s\n", n)
	}
	fmt.Fprintln(w)
}

func candidateRow(t io.Writer, c explain.Candidate, terms []string, chosen bool) {
	mark := " "
	if chosen {
		mark = "*"
	}
	fmt.Fprintf(t, "  %s\t%s\t%s", mark, c.Name, termSeconds(c.Seconds(), len(c.Terms) > 0))
	for _, n := range terms {
		s, ok := termOf(c, n)
		fmt.Fprintf(t, "\t%s", termSeconds(s, ok))
	}
	fmt.Fprintf(t, "\t%s\n", c.Dropped)
}

// termNames lists the terms of all candidates in the order they first appear.
func termNames(r *explain.Record) []string {
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

func termOf(c explain.Candidate, name string) (float64, bool) {
	var sum float64
	var found bool
	for _, t := range c.Terms {
		if t.Name == name {
			sum, found = sum+t.Seconds, true
		}
	}
	return sum, found
}

func termSeconds(s float64, known bool) string {
	if !known {
		return "-"
	}
	return fmt.Sprintf("%.1fms", s*1000)
}

// must stops on mistakes in the command table itself.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
