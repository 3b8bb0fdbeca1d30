package experiment

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// publicTraces is the directory of the public traces, if it is set.
func publicTraces() string { return os.Getenv(load.TracesVariable) }

// TestCatalogueIsComplete: E1 to E16 exist, each with a question and assertions.
func TestCatalogueIsComplete(t *testing.T) {
	all, err := LoadCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range all {
		ids = append(ids, e.ID)
		if e.Question == "" || len(e.Pass) == 0 {
			t.Errorf("%s asks nothing or has no line", e.ID)
		}
		if text, err := ReadExperimentText(strings.ToLower(e.ID)); err != nil || !bytes.HasPrefix(text, []byte("id: "+e.ID+"\n")) {
			t.Errorf("%s is not in its file: %v", e.ID, err)
		}
	}
	want := strings.Fields("E1 E2 E3 E4 E5 E6 E7 E8 E9 E10 E11 E12 E13 E14 E15 E16")
	if !slices.Equal(ids, want) {
		t.Errorf("the catalogue is %v, want %v", ids, want)
	}
	if _, err := FindExperiment("E0"); err == nil || !strings.Contains(err.Error(), "use one of E1, E2,") {
		t.Errorf("finding E0: %v", err)
	}
}

// TestSmallFormsKeepTheirAssertions runs the small form of every experiment that can be run: each assertion is judged
// by figures that are the same twice, and those that hold with a wide margin keep holding.
func TestSmallFormsKeepTheirAssertions(t *testing.T) {
	all, err := LoadCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		t.Run(e.ID, func(t *testing.T) {
			t.Parallel()
			e.UseSmallForm()
			// The race detector makes the small forms ten times as slow, and most differ only in figures.
			if testkit.RaceDetector && e.ID != "E4" && e.ID != "E13" {
				t.Skip("not under the race detector")
			}
			if lacks := e.MissingNeeds(publicTraces()); len(lacks) > 0 || e.Command != "" {
				checkNotRun(t, e)
				t.Skipf("not run: %s", strings.Join(append(lacks, e.Command), "; "))
			}
			r, err := RunExperiment(t.Context(), e, Options{Traces: publicTraces(), Small: true, Workers: 1})
			if err != nil {
				t.Fatal(err)
			}
			checkReport(t, e, r)
		})
	}
}

// checkNotRun checks that what is not run does not pass.
func checkNotRun(t *testing.T, e *Experiment) {
	t.Helper()
	r, err := RunExperiment(t.Context(), e, Options{Traces: publicTraces()})
	if err != nil || r.Passed || len(r.Cases) > 0 || slices.ContainsFunc(r.Lines, func(v AssertionResult) bool { return v.Holds }) {
		t.Errorf("%s was not run and came to %+v, %v", e.ID, r, err)
	}
}

func checkReport(t *testing.T, e *Experiment, r *Report) {
	t.Helper()
	if _, err := json.Marshal(r); err != nil { // NaN cannot be marshaled
		t.Error(err)
	}
	for _, c := range r.Cases {
		if len(c.Rows) == 0 {
			t.Errorf("case %q has no rows", c.Name)
		}
		for _, row := range c.Rows {
			if row.Sent == 0 || len(row.Figures) == 0 {
				t.Errorf("case %q, %s: nothing was measured", c.Name, row.Policy)
			}
		}
	}
	guarded := map[string]bool{}
	for _, l := range e.Pass {
		guarded[l.Line] = l.Guard
	}
	for _, v := range r.Lines {
		switch {
		case v.Figures == "":
			t.Errorf("%s was not judged", v.Line)
		case !v.Holds && guarded[v.Line]:
			t.Errorf("%s no longer holds: %s", v.Line, v.Figures)
		case !v.Holds:
			t.Logf("does not hold: %s: %s", v.Line, v.Figures)
		}
	}
}

// TestRunbookExperimentIsValid checks the example experiment of the runbook.
func TestRunbookExperimentIsValid(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "deploy", "runbooks", "simulate.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "```yaml\n")
	text, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("the runbook shows no experiment")
	}
	if _, err := DecodeExperiment("simulate.md", []byte(text)); err != nil {
		t.Error(err)
	}
}
