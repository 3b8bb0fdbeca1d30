package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
)

// maxLag is how late requests may leave by p99 before a run says more of the machine than of the policies.
const maxLag = 250 * time.Millisecond

// sum is one policy over all its runs.
type sum struct {
	policy  string
	slo     time.Duration
	workers int
	runs    []row
	kinds   map[string]int
}

// row is one run in numbers.
type row struct {
	sent, ok, refused, errors int
	p50, p99                  time.Duration
	good                      float64 // answers within the SLO, per second
	taken                     []uint64
	lag                       time.Duration
}

func (s *sum) add(r *result) {
	if s.kinds == nil {
		s.kinds = map[string]int{}
	}
	w := row{sent: len(r.outcomes), taken: r.taken, lag: r.lag}
	var ttft []time.Duration
	for i := range r.outcomes {
		o := &r.outcomes[i]
		switch {
		case o.Verdict == "ok":
			w.ok++
			d := o.First.Sub(o.Due)
			ttft = append(ttft, d)
			if d <= s.slo {
				w.good += 1 / r.span.Seconds()
			}
			continue
		case o.Verdict == "refused" && (o.Status == 429 || o.Status == 503):
			w.refused++
		default:
			w.errors++
		}
		s.kinds[kind(o)]++
	}
	slices.Sort(ttft)
	w.p50, w.p99 = quantile(ttft, 0.5), quantile(ttft, 0.99)
	s.runs = append(s.runs, w)
}

// kind is what went wrong, in a few words.
func kind(o *load.Outcome) string {
	what := o.Verdict
	if o.Status >= 400 {
		what += fmt.Sprint(" ", o.Status)
	}
	if o.Code != "" && o.Code != "-" {
		what += " " + o.Code
	}
	return what
}

// quantile of an ascending list; 0 of an empty one.
func quantile(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	return list[min(int(q*float64(len(list))), len(list)-1)]
}

// spread is a figure's mean over the runs, with its least and greatest where there are several.
func (s *sum) spread(format string, of func(*row) float64) string {
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

func printSums(w io.Writer, sums []*sum, faults bool) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "\nPOLICY\tSENT\tOK\tREFUSED\tERRORS\tERROR RATE %\tTTFT P50 s\tTTFT P99 s\tGOODPUT req/s")
	for i := range sums[0].workers {
		fmt.Fprintf(t, "\tW%d%s", i+1, mark(i, faults))
	}
	fmt.Fprintln(t)
	for _, s := range sums {
		if len(s.runs) > 0 {
			s.print(t)
		}
	}
	t.Flush() // what cannot be printed cannot be told either
	for _, s := range sums {
		if len(s.kinds) > 0 {
			fmt.Fprintf(w, "%s: %s\n", s.policy, s.wrong())
		}
	}
	fmt.Fprintf(w, "mean of %d runs (least..greatest); W columns are the share of all requests that each worker was sent, in %%; requests left late by p99 %v at most\n",
		len(sums[0].runs), worstLag(sums).Round(time.Millisecond))
	if worstLag(sums) > maxLag {
		fmt.Fprintf(w, "THIS IS NO EVIDENCE: the machine was too busy to send on time. Run it again when nothing else runs.\n")
	}
}

func (s *sum) print(t io.Writer) {
	var sent, ok, refused, errs int
	taken, all := make([]uint64, s.workers), uint64(0)
	for i := range s.runs {
		r := &s.runs[i]
		sent, ok, refused, errs = sent+r.sent, ok+r.ok, refused+r.refused, errs+r.errors
		for w, n := range r.taken {
			taken[w] += n
			all += n
		}
	}
	fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s", s.policy, sent, ok, refused, errs,
		s.spread("%.2f", func(r *row) float64 { return 100 * float64(r.errors+r.refused) / float64(max(r.sent, 1)) }),
		s.spread("%.2f", func(r *row) float64 { return r.p50.Seconds() }),
		s.spread("%.2f", func(r *row) float64 { return r.p99.Seconds() }),
		s.spread("%.1f", func(r *row) float64 { return r.good }))
	for _, n := range taken {
		fmt.Fprintf(t, "\t%.1f", 100*float64(n)/float64(max(all, 1)))
	}
	fmt.Fprintln(t)
}

// wrong lists what went wrong, the most frequent first.
func (s *sum) wrong() string {
	kinds := slices.SortedFunc(maps.Keys(s.kinds), func(a, b string) int { return cmp.Or(s.kinds[b]-s.kinds[a], strings.Compare(a, b)) })
	for i, k := range kinds {
		kinds[i] = fmt.Sprintf("%d %s", s.kinds[k], k)
	}
	return strings.Join(kinds, ", ")
}

func mark(i int, faults bool) string {
	if !faults {
		return ""
	}
	return map[int]string{slowed: " slow", lying: " lies", leaking: " leaks"}[i]
}

func worstLag(sums []*sum) (worst time.Duration) {
	for _, s := range sums {
		for i := range s.runs {
			worst = max(worst, s.runs[i].lag)
		}
	}
	return worst
}
