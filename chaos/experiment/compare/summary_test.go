package compare

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
)

// maxSendLag is the p99 of the send delay above which a run depends on the machine more than on the policies.
const maxSendLag = 250 * time.Millisecond

// policySummary is one policy over all its runs.
type policySummary struct {
	policy   string
	slo      time.Duration
	workers  int
	runs     []runRow
	failures map[string]int
}

// runRow is the figures of one run.
type runRow struct {
	sent, ok, refused, errors int
	p50, p99                  time.Duration
	goodput                   float64 // answers within the SLO, per second
	requestsByWorker          []uint64
	lag                       time.Duration
}

func (s *policySummary) addRun(r *policyResult) {
	if s.failures == nil {
		s.failures = map[string]int{}
	}
	w := runRow{sent: len(r.outcomes), requestsByWorker: r.requestsByWorker, lag: r.lag}
	var ttft []time.Duration
	for i := range r.outcomes {
		o := &r.outcomes[i]
		switch {
		case o.Kind == "ok":
			w.ok++
			d := o.First.Sub(o.Due)
			ttft = append(ttft, d)
			if d <= s.slo {
				w.goodput += 1 / r.span.Seconds()
			}
			continue
		case o.Kind == "refused" && (o.Status == 429 || o.Status == 503):
			w.refused++
		default:
			w.errors++
		}
		s.failures[failureKind(o)]++
	}
	slices.Sort(ttft)
	w.p50, w.p99 = quantileOf(ttft, 0.5), quantileOf(ttft, 0.99)
	s.runs = append(s.runs, w)
}

// failureKind is a short description of a failure.
func failureKind(o *load.RequestOutcome) string {
	what := o.Kind
	if o.Status >= 400 {
		what += fmt.Sprint(" ", o.Status)
	}
	if o.Code != "" && o.Code != "-" {
		what += " " + o.Code
	}
	return what
}

// quantileOf is a quantile of an ascending list; 0 of an empty one.
func quantileOf(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	return list[min(int(q*float64(len(list))), len(list)-1)]
}

// formatSpread is a figure's mean over the runs, with its minimum and maximum if there are several.
func (s *policySummary) formatSpread(format string, of func(*runRow) float64) string {
	least, most, total := of(&s.runs[0]), of(&s.runs[0]), 0.0
	for i := range s.runs {
		v := of(&s.runs[i])
		least, most, total = min(least, v), max(most, v), total+v
	}
	text := fmt.Sprintf(format, total/float64(len(s.runs)))
	if len(s.runs) > 1 {
		text += fmt.Sprintf(" ("+format+".."+format+")", least, most)
	}
	return text
}

func printSummaries(w io.Writer, sums []*policySummary, faults bool) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "\nPOLICY\tSENT\tOK\tREFUSED\tERRORS\tERROR RATE %\tTTFT P50 s\tTTFT P99 s\tGOODPUT req/s")
	for i := range sums[0].workers {
		fmt.Fprintf(t, "\tW%d%s", i+1, markFault(i, faults))
	}
	fmt.Fprintln(t)
	for _, s := range sums {
		if len(s.runs) > 0 {
			s.printRow(t)
		}
	}
	t.Flush() // errors of printing cannot be reported
	for _, s := range sums {
		if len(s.failures) > 0 {
			fmt.Fprintf(w, "%s: %s\n", s.policy, s.listFailures())
		}
	}
	fmt.Fprintf(w, "mean of %d runs (least..greatest); W columns are the share of all requests that each worker was sent, in %%; requests left late by p99 %v at most\n",
		len(sums[0].runs), maxLagOf(sums).Round(time.Millisecond))
	if maxLagOf(sums) > maxSendLag {
		fmt.Fprintf(w, "INVALID: the machine was too busy to send on time. Repeat the run without other load.\n")
	}
}

func (s *policySummary) printRow(t io.Writer) {
	var sent, ok, refused, errs int
	taken, all := make([]uint64, s.workers), uint64(0)
	for i := range s.runs {
		r := &s.runs[i]
		sent, ok, refused, errs = sent+r.sent, ok+r.ok, refused+r.refused, errs+r.errors
		for w, n := range r.requestsByWorker {
			taken[w] += n
			all += n
		}
	}
	fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s", s.policy, sent, ok, refused, errs,
		s.formatSpread("%.2f", func(r *runRow) float64 { return 100 * float64(r.errors+r.refused) / float64(max(r.sent, 1)) }),
		s.formatSpread("%.2f", func(r *runRow) float64 { return r.p50.Seconds() }),
		s.formatSpread("%.2f", func(r *runRow) float64 { return r.p99.Seconds() }),
		s.formatSpread("%.1f", func(r *runRow) float64 { return r.goodput }))
	for _, n := range taken {
		fmt.Fprintf(t, "\t%.1f", 100*float64(n)/float64(max(all, 1)))
	}
	fmt.Fprintln(t)
}

// listFailures lists the failures, the most frequent first.
func (s *policySummary) listFailures() string {
	kinds := slices.SortedFunc(maps.Keys(s.failures), func(a, b string) int { return cmp.Or(s.failures[b]-s.failures[a], strings.Compare(a, b)) })
	for i, k := range kinds {
		kinds[i] = fmt.Sprintf("%d %s", s.failures[k], k)
	}
	return strings.Join(kinds, ", ")
}

func markFault(i int, faults bool) string {
	if !faults {
		return ""
	}
	return map[int]string{slowWorker: " slow", lyingWorker: " lies", leakingWorker: " leaks"}[i]
}

func maxLagOf(sums []*policySummary) (worst time.Duration) {
	for _, s := range sums {
		for i := range s.runs {
			worst = max(worst, s.runs[i].lag)
		}
	}
	return worst
}

// appendOutcomes appends a run's outcomes to the file of all outcomes: policy, seed, health, when the request was
// due, its first token and its end, in seconds from the first due time, then outcome, route and tokens.
func (o *compareOptions) appendOutcomes(policy string, seed int, health bool, r *policyResult) (err error) {
	if o.dump == "" || len(r.outcomes) == 0 {
		return nil
	}
	f, err := os.OpenFile(o.dump, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("writing outcomes: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	start := r.outcomes[0].Due
	for i := range r.outcomes {
		if d := r.outcomes[i].Due; d.Before(start) {
			start = d
		}
	}
	w := csv.NewWriter(f)
	for i := range r.outcomes {
		c := &r.outcomes[i]
		first := ""
		if !c.First.IsZero() {
			first = fmt.Sprintf("%.3f", c.First.Sub(start).Seconds())
		}
		_ = w.Write([]string{ // the writer keeps its first error
			policy, strconv.Itoa(seed), strconv.FormatBool(health), fmt.Sprintf("%.3f", c.Due.Sub(start).Seconds()), first,
			fmt.Sprintf("%.3f", c.Done.Sub(start).Seconds()), failureKind(c), c.Route, strconv.Itoa(c.Prompt), strconv.Itoa(c.Output),
		})
	}
	w.Flush()
	return w.Error()
}
