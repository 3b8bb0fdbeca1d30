package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/explain"
)

func newTraceCommand() *cobra.Command {
	var (
		to     adminTarget
		output string
	)
	cmd := &cobra.Command{
		Use:   "trace REQUEST_ID",
		Short: "Show what was decided about one request in each tier: candidates, costs, attempts and outcome",
		Long: `Show what was decided about one request in each tier: candidates with their costs at the time of the decision, the choice,
the attempts and the outcome. REQUEST_ID is the X-Request-Id of the response; the access log has it too.

A global node asks the gateways of all regions, and each gateway the local instances of its region. A gateway or a local
instance answers for itself and for the tiers below it. Each keeps the newest decisions within decisions.memory. A merged
call (embeddings) is recorded under the id of its first request.

Events: choice (an endpoint was chosen; candidates are the chosen one and those with the lowest costs), refused (no
endpoint was chosen), end (of an attempt at a local instance, of the request at a gateway).`,
		Example: "  spillway trace req_1x8m3k9q2\n  spillway trace req_1x8m3k9q2 -o json\n  spillway trace --server unix:///run/spillway/gateway.sock req_1x8m3k9q2",
		GroupID: "operate",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return newUsageError("trace REQUEST_ID", "REQUEST_ID is the X-Request-Id of the response")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.TraceRequest(ctx, args[0])
				if err != nil {
					return err
				}
				if output == "json" {
					err = printJSON(cmd.OutOrStdout(), a)
				} else {
					printTrace(cmd.OutOrStdout(), a)
				}
				for _, n := range a.Nodes {
					if n.Error != "" {
						fmt.Fprintf(cmd.ErrOrStderr(), "%s (%s) did not answer: %s\n", n.Node, n.Tier, n.Error)
					}
				}
				if err == nil && len(a.Steps) == 0 {
					err = describeMissingTrace(a)
				}
				return err
			})
		},
	}
	to.addFlags(cmd)
	addOutputFlag(cmd, &output)
	return cmd
}

// describeMissingTrace explains why no asked node has a record of the request.
func describeMissingTrace(a *admin.TraceAnswer) error {
	var lines []string
	asked, kept := 0, 0
	for _, n := range a.Nodes {
		switch {
		case n.Error != "":
			continue
		case n.Off:
			lines = append(lines, fmt.Sprintf("  %s (%s): keeps no decisions (decisions.memory is 0)", n.Node, n.Tier))
		case n.Records == 0:
			lines = append(lines, fmt.Sprintf("  %s (%s): has recorded no decision since it started", n.Node, n.Tier))
		default:
			lines = append(lines, fmt.Sprintf("  %s (%s): keeps %d records, the oldest %s old", n.Node, n.Tier, n.Records, n.Now.Sub(n.Oldest).Round(time.Second)))
			kept++
		}
		asked++
	}
	text := fmt.Sprintf("no record of request %q", a.RequestID)
	switch {
	case len(a.Nodes) == 0:
		return errors.New(text + ": no gateway is connected to the asked node\nhint: ask a gateway or a local instance with --server")
	case asked == 0:
		return errors.New(text + ": none of the asked nodes answered")
	case kept == 0:
		return errors.New(text + "\n" + strings.Join(lines, "\n"))
	}
	return errors.New(text + "\n" + strings.Join(lines, "\n") +
		"\nhint: the id is unknown, or the request is older than the oldest record and was overwritten; decisions.memory sets how much is kept")
}

func printTrace(w io.Writer, a *admin.TraceAnswer) {
	if len(a.Steps) == 0 {
		return
	}
	start := a.Steps[0].At
	fmt.Fprintf(w, "request %s, first record at %s\n\n", a.RequestID, start.UTC().Format(time.RFC3339Nano))
	for i := range a.Steps {
		printTraceStep(w, &a.Steps[i], start)
	}
}

func printTraceStep(w io.Writer, s *admin.TraceStep, start time.Time) {
	fmt.Fprintf(w, "+%s  %s (%s): ", formatTermSeconds(s.At.Sub(start).Seconds(), true), s.Tier, s.Node)
	switch s.Event {
	case "end":
		printTraceEnd(w, s)
		return
	case "refused":
		fmt.Fprintf(w, "refused (%s)%s\n", s.Reason, describeTraceQuery(s))
	default:
		fmt.Fprintf(w, "chose %s (%s)%s\n", s.Chosen, describeTraceReason(s), describeTraceQuery(s))
	}
	if len(s.Candidates) == 0 {
		fmt.Fprintln(w)
		return
	}
	e := explain.Explanation{Candidates: s.Candidates, Chosen: s.Chosen}
	terms := listTermNames(&e)
	writeTable(w, func(t io.Writer) {
		fmt.Fprint(t, "  \tCANDIDATE\tCOST")
		for _, n := range terms {
			fmt.Fprintf(t, "\t%s", strings.ToUpper(n))
		}
		fmt.Fprintln(t, "\tINELIGIBLE")
		for _, c := range s.Candidates {
			printCandidateRow(t, c, terms, c.Name == s.Chosen)
		}
	})
	if more := s.Considered - len(s.Candidates); more > 0 {
		fmt.Fprintf(w, "  and %d more candidates\n", more)
	}
	fmt.Fprintln(w)
}

func describeTraceReason(s *admin.TraceStep) string {
	if s.Policy != "" {
		return s.Reason + ", by " + s.Policy
	}
	return s.Reason
}

// describeTraceQuery describes what the decision was about.
func describeTraceQuery(s *admin.TraceStep) string {
	text := fmt.Sprintf("\n  model %s, tenant %s, class %s, about %d prompt tokens (%d cached) and %d output tokens", dashIfEmpty(s.Model), dashIfEmpty(s.Tenant), dashIfEmpty(s.Class), s.PromptTokens, s.CachedTokens, s.OutputTokens)
	if s.WaitedSeconds > 0 {
		text += ", waited " + formatTermSeconds(s.WaitedSeconds, true)
	}
	if s.PredictedTTFT > 0 {
		text += ", predicted TTFT " + formatTermSeconds(s.PredictedTTFT, true)
	}
	return text
}

func printTraceEnd(w io.Writer, s *admin.TraceStep) {
	fmt.Fprintf(w, "%s at %s", s.Outcome, dashIfEmpty(s.Chosen))
	if s.Status != 0 {
		fmt.Fprintf(w, ", status %d", s.Status)
	}
	if s.Reason != "" {
		fmt.Fprintf(w, " (%s)", s.Reason)
	}
	if s.Attempts > 0 {
		fmt.Fprintf(w, ", attempts %d", s.Attempts)
	}
	if s.FirstByteSeconds > 0 {
		fmt.Fprintf(w, ", first byte after %s", formatTermSeconds(s.FirstByteSeconds, true))
	}
	fmt.Fprintf(w, ", took %s", formatTermSeconds(s.Seconds, true))
	if s.PromptTokens+s.OutputTokens > 0 {
		fmt.Fprintf(w, ", %d prompt (%d cached) and %d output tokens", s.PromptTokens, s.CachedTokens, s.OutputTokens)
	}
	fmt.Fprint(w, "\n\n")
}
