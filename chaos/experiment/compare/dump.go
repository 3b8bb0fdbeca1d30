package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
)

var dumpMutex sync.Mutex

// appendOutcomes appends a run's outcomes to the file of all outcomes: policy, seed, health, when the request was
// due, its first token and its end, in seconds from the first due time, then outcome, route and tokens.
func (o *compareOptions) appendOutcomes(policy string, seed int, health bool, r *policyResult) (err error) {
	if o.dump == "" || len(r.outcomes) == 0 {
		return nil
	}
	dumpMutex.Lock()
	defer dumpMutex.Unlock()
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
