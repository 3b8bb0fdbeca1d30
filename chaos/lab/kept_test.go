package lab

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

// screenable is a small experiment with a search, values and several policies.
func screenable(t *testing.T) *Experiment {
	e := good(t)
	e.Seeds, e.Screen, e.Values = 3, 1, []float64{4}
	e.Workload.Repeat = true
	e.Policies = []string{"predictive", "round_robin", "random", "least_connections", "lmetric", "power_of_two"}
	e.Capacity = Capacity{From: 1, To: 200, Attainment: .99, Within: .2}
	e.Pass = []Line{{Line: "goodput(predictive) >= 0.5 * best(goodput)"}, {Line: "capacity(predictive) >= 0.5 * capacity(random)"}}
	return e
}

func marshal(t *testing.T, r *Report) string {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestKept: an experiment that is stopped goes on where it was, and comes to the same to the last byte as one that was not.
func TestKept(t *testing.T) {
	e := screenable(t)
	whole, err := Run(t.Context(), e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	keep, err := OpenKept(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if _, err := Run(ctx, e, Options{Keep: keep, Progress: func(done float64) {
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
	if err := os.WriteFile(some[0], []byte("rubbish"), 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := Run(t.Context(), e, Options{Keep: keep})
	if err != nil {
		t.Fatal(err)
	}
	if marshal(t, again) != marshal(t, whole) {
		t.Error("an interrupted experiment comes to something else")
	}
	all := len(files())
	told := 0
	third, err := Run(t.Context(), e, Options{Keep: keep, Progress: func(float64) { told++ }})
	if err != nil || marshal(t, third) != marshal(t, whole) || len(files()) != all || told != 0 {
		t.Errorf("%v: what was kept was run again: %d files instead of %d, told %d times", err, len(files()), all, told)
	}
	e.SLO.TTFT += time.Millisecond
	if _, err := Run(t.Context(), e, Options{Keep: keep}); err != nil || len(files()) <= all {
		t.Errorf("%v: another question was answered with what was kept", err)
	}
}

// TestScreen: the subject, whom lines name, and the best of what they ask for have every seed, the others those that screen; tables
// say who has how many.
func TestScreen(t *testing.T) {
	e := screenable(t)
	r, err := Run(t.Context(), e, Options{})
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
	if full < 2+finalists-1 || full == len(c.Rows) {
		t.Errorf("%d of %d rows have every seed", full, len(c.Rows))
	}
	env := env{cases: r.Cases, here: c, value: c.Rows[0].Value, subject: e.Subject}
	m, _ := findMetric("goodput")
	for i, policy := range env.ranked(&call{pick: "best", metric: m}, c, c.Rows[0].Value) {
		if row := c.row(policy, c.Rows[0].Value); i < finalists && row.Seeds != 3 {
			t.Errorf("%s is the best but %d and has %d seeds", policy, i, row.Seeds)
		}
	}
	for _, row := range c.Capacity { // of which lines name two policies, and ask for no best
		if want := map[bool]int{true: 3, false: 1}[slices.Contains([]string{"predictive", "random"}, row.Policy)]; row.Seeds != want {
			t.Errorf("the capacity of %s has %d seeds, want %d", row.Policy, row.Seeds, want)
		}
	}
	var text, page bytes.Buffer
	if err := r.Print(&text); err != nil || !strings.Contains(text.String(), "SEEDS") {
		t.Errorf("%v: %s", err, text.String())
	}
	if err := r.Page(&page); err != nil || !strings.Contains(page.String(), "<th>seeds</th>") {
		t.Errorf("%v: %s", err, page.String())
	}
}

// TestSearchGoesOn: with a guess a search comes to within the tolerance of what it finds without, in fewer runs, and a guess that is
// far off misleads nobody.
func TestSearchGoesOn(t *testing.T) {
	for _, limit := range []float64{1.01, 3, 17, 40, 98, 99.9} {
		search := func(other *found) (low, high float64, tries int) {
			c := &Case{Vary: "rate", Capacity: &Capacity{From: 1, To: 100, Within: .05}}
			b := newBracket(c.Capacity, other)
			for v, more := b.next(c); more; v, more = b.next(c) {
				b.note(v, v <= limit)
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
			f := &found{sample: sample{v: guess}, next: guess * 1.04}
			low, high, n := search(f)
			if low > limit || high < limit || high/low > 1.05+1e-9 || guess == limit/1.02 && n > 2 {
				t.Errorf("%v lies from %v to %v after %d runs with the guess %v", limit, low, high, n, guess)
			}
		}
	}
}

// TestSoFar: what is finished is reported while the rest is under way, and does not pass.
func TestSoFar(t *testing.T) {
	e := screenable(t)
	r := &Report{ID: e.ID, Seeds: []uint64{1, 2, 3}}
	var so *Report
	p := newPlay(e, r, Options{SoFar: func(r *Report) { so = r }})
	if err := p.run(t.Context(), p.rows[0].jobs[:2]); err != nil {
		t.Fatal(err)
	}
	p.saved = time.Now().Add(-time.Hour)
	p.soFar()
	if so == nil || so.Passed || so.Standing() != Unfinished || so.Part <= 0 || so.Part >= 1 || len(so.Cases[0].Rows) != 1 || so.Cases[0].Rows[0].Seeds != 2 {
		t.Fatalf("%+v", so)
	}
	if len(so.Lines) != 2 || so.Lines[0].Holds || len(r.Cases[0].Rows) != 0 {
		t.Errorf("%+v", so.Lines)
	}
	var text, page bytes.Buffer
	if err := so.Print(&text); err != nil || !strings.Contains(text.String(), "not finished") {
		t.Errorf("%v: %s", err, text.String())
	}
	if err := so.Page(&page); err != nil || !strings.Contains(page.String(), "not finished") {
		t.Errorf("%v: %s", err, page.String())
	}
}

// FuzzKept: no bytes break the reader of kept runs.
func FuzzKept(f *testing.F) {
	var b bytes.Buffer
	k := &Kept{dir: f.TempDir()}
	name := filepath.Join(k.dir, "a.run")
	if err := k.save(name, &keptRun{Found: &keptFound{Sample: keptSample{V: 3}, Probes: []Probe{{Value: 1}}}}); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := readKept(bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, search := range []bool{false, true} {
			j := &job{search: search}
			if j.fill(r) != j.played() {
				t.Fatalf("%+v fills a job half", r)
			}
		}
	})
}
