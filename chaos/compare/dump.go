package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
)

var dumping sync.Mutex

// write appends a run's outcomes to the file of all outcomes: policy, seed, health, when the request was due and when its
// first token and its end came, all in seconds from the first one's due moment, then what came of it, from where, and
// its tokens.
func (o *options) write(policy string, seed int, health bool, r *result) (err error) {
	if o.dump == "" || len(r.outcomes) == 0 {
		return nil
	}
	dumping.Lock()
	defer dumping.Unlock()
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
			fmt.Sprintf("%.3f", c.Done.Sub(start).Seconds()), kind(c), c.Route, strconv.Itoa(c.Prompt), strconv.Itoa(c.Output),
		})
	}
	w.Flush()
	return w.Error()
}
