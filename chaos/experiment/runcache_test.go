package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// newScreenedExperiment is a small experiment with a search, values and several policies.
func newScreenedExperiment(t *testing.T) *Experiment {
	e := goodExperiment(t)
	e.Seeds, e.Screen, e.Values = 3, 1, []float64{4}
	e.Workload.Repeat = true
	e.Policies = []string{"predictive", "round_robin", "random", "least_connections", "lmetric", "power_of_two"}
	e.Capacity = CapacitySearch{From: 1, To: 200, Attainment: .99, Within: .2}
	e.Pass = []Assertion{{Line: "goodput(predictive) >= 0.5 * best(goodput)"}, {Line: "capacity(predictive) >= 0.5 * capacity(random)"}}
	return e
}

func marshalReport(t *testing.T, r *Report) string {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestInterruptedExperimentResumesFromCache: an interrupted experiment continues where it was, and its report equals
// that of an uninterrupted one to the last byte.
func TestInterruptedExperimentResumesFromCache(t *testing.T) {
	e := newScreenedExperiment(t)
	whole, err := RunExperiment(t.Context(), e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	keep, err := OpenRunCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if _, err := RunExperiment(ctx, e, Options{Cache: keep, OnProgress: func(done float64) {
		if done > 0.3 {
			stop()
		}
	}}); err == nil {
		t.Fatal("it was not stopped")
	}
	files := func() []string {
		list, err := filepath.Glob(filepath.Join(keep.dir, "*.run"))
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	some := files()
	if len(some) == 0 {
		t.Fatal("nothing was kept")
	}
	if err := os.WriteFile(some[0], []byte("malformed"), 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := RunExperiment(t.Context(), e, Options{Cache: keep})
	if err != nil {
		t.Fatal(err)
	}
	if marshalReport(t, again) != marshalReport(t, whole) {
		t.Error("an interrupted experiment comes to something else")
	}
	all := len(files())
	reported := 0
	third, err := RunExperiment(t.Context(), e, Options{Cache: keep, OnProgress: func(float64) { reported++ }})
	if err != nil || marshalReport(t, third) != marshalReport(t, whole) || len(files()) != all || reported != 0 {
		t.Errorf("%v: what was kept was run again: %d files instead of %d, reported %d times", err, len(files()), all, reported)
	}
	e.SLO.TTFT += time.Millisecond
	if _, err := RunExperiment(t.Context(), e, Options{Cache: keep}); err != nil || len(files()) <= all {
		t.Errorf("%v: another question was answered with what was kept", err)
	}
}

// TestScreeningRunsBestPoliciesWithEverySeed: the subject, named policies, and the best for a requested figure have
// every seed, the others only those of the screening; tables show the numbers.
func TestScreeningRunsBestPoliciesWithEverySeed(t *testing.T) {
	e := newScreenedExperiment(t)
	r, err := RunExperiment(t.Context(), e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := &r.Cases[0]
	full := 0
	for i := range c.Rows {
		row := &c.Rows[i]
		if row.Seeds == 3 {
			full++
		} else if row.Seeds != 1 || slices.Contains([]string{"predictive", "random"}, row.Policy) {
			t.Errorf("%s has %d seeds", row.Policy, row.Seeds)
		}
	}
	if full < 2+finalistCount-1 || full == len(c.Rows) {
		t.Errorf("%d of %d rows have every seed", full, len(c.Rows))
	}
	env := judgeScope{cases: r.Cases, current: c, value: c.Rows[0].Value, subject: e.Subject}
	m, _ := findMetric("goodput")
	for i, policy := range env.rankPolicies(&figureCall{choice: "best", metric: m}, c, c.Rows[0].Value) {
		if row := c.findRow(policy, c.Rows[0].Value); i < finalistCount && row.Seeds != 3 {
			t.Errorf("%s is the best but %d and has %d seeds", policy, i, row.Seeds)
		}
	}
	for _, row := range c.Capacity { // named by assertions, which ask for no best
		if want := map[bool]int{true: 3, false: 1}[slices.Contains([]string{"predictive", "random"}, row.Policy)]; row.Seeds != want {
			t.Errorf("the capacity of %s has %d seeds, want %d", row.Policy, row.Seeds, want)
		}
	}
	var text, page bytes.Buffer
	if err := r.WriteTables(&text); err != nil || !strings.Contains(text.String(), "SEEDS") {
		t.Errorf("%v: %s", err, text.String())
	}
	if err := r.WritePage(&page); err != nil || !strings.Contains(page.String(), "<th>seeds</th>") {
		t.Errorf("%v: %s", err, page.String())
	}
}

// TestSearchStartsFromAnotherSeedsResult: with a guess a search ends within the tolerance of its result without, in
// fewer runs, and a wrong guess does not change the result.
func TestSearchStartsFromAnotherSeedsResult(t *testing.T) {
	for _, limit := range []float64{1.01, 3, 17, 40, 98, 99.9} {
		search := func(other *searchResult) (low, high float64, tries int) {
			c := &Case{Vary: "rate", Capacity: &CapacitySearch{From: 1, To: 100, Within: .05}}
			b := newSearchBracket(c.Capacity, other)
			for v, more := b.nextValue(c); more; v, more = b.nextValue(c) {
				b.recordTry(v, v <= limit)
				if tries++; tries > 50 {
					t.Fatal("the search does not end")
				}
			}
			return b.low, b.high, tries
		}
		low, high, tries := search(nil)
		if low > limit || high < limit || high/low > 1.05+1e-9 || tries > 8 {
			t.Errorf("%v lies from %v to %v after %d runs", limit, low, high, tries)
		}
		for _, guess := range []float64{limit / 1.02, 1.5, 50, 95} {
			f := &searchResult{seedFigure: seedFigure{value: guess}, leastFailed: guess * 1.04}
			low, high, n := search(f)
			if low > limit || high < limit || high/low > 1.05+1e-9 || guess == limit/1.02 && n > 2 {
				t.Errorf("%v lies from %v to %v after %d runs with the guess %v", limit, low, high, n, guess)
			}
		}
	}
}

// TestPartialReportsDoNotPass: finished parts are reported during the run, and do not pass.
func TestPartialReportsDoNotPass(t *testing.T) {
	e := newScreenedExperiment(t)
	r := &Report{ID: e.ID, Seeds: []uint64{1, 2, 3}}
	var so *Report
	p := newExperimentRun(e, r, Options{OnPartialReport: func(r *Report) { so = r }})
	if err := p.runJobs(t.Context(), p.mainRuns[0].jobs[:2]); err != nil {
		t.Fatal(err)
	}
	p.lastPartial = time.Now().Add(-time.Hour)
	p.reportPartial()
	if so == nil || so.Passed || so.Status() != StatusUnfinished || so.DoneShare <= 0 || so.DoneShare >= 1 || len(so.Cases[0].Rows) != 1 || so.Cases[0].Rows[0].Seeds != 2 {
		t.Fatalf("%+v", so)
	}
	if len(so.Lines) != 2 || so.Lines[0].Holds || len(r.Cases[0].Rows) != 0 {
		t.Errorf("%+v", so.Lines)
	}
	var text, page bytes.Buffer
	if err := so.WriteTables(&text); err != nil || !strings.Contains(text.String(), "not finished") {
		t.Errorf("%v: %s", err, text.String())
	}
	if err := so.WritePage(&page); err != nil || !strings.Contains(page.String(), "not finished") {
		t.Errorf("%v: %s", err, page.String())
	}
}

// FuzzReadCachedRun: no bytes make the decoder of stored runs panic.
func FuzzReadCachedRun(f *testing.F) {
	var b bytes.Buffer
	k := &RunCache{dir: f.TempDir()}
	name := filepath.Join(k.dir, "a.run")
	if err := k.saveRun(name, &cachedRun{Search: &cachedSearch{Sample: cachedFigure{Value: 3}, Probes: []SearchProbe{{Value: 1}}}}); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := readCachedRun(bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, search := range []bool{false, true} {
			j := &runJob{search: search}
			if j.fillFromCache(r) != j.isDone() {
				t.Fatalf("%+v fills a job half", r)
			}
		}
	})
}
