package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../../.."

// TestMutantsFitTheCode: each mutant changes one place of a product file into other Go, and names tests to catch it. `make mutants` runs them.
func TestMutantsFitTheCode(t *testing.T) {
	names, areas := map[string]bool{}, map[string]bool{}
	for i := range allMutants {
		m := &allMutants[i]
		text, err := m.mutateFile(root)
		if err != nil {
			t.Error(err)
			continue
		}
		original, err := os.ReadFile(filepath.Join(root, m.File))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(text, original) || names[m.Name] || len(m.Catchers) == 0 || strings.HasPrefix(m.File, "chaos/") {
			t.Errorf("mutant %s changes nothing, has a name twice, no catcher, or is no mutant of the product", m.Name)
		}
		names[m.Name] = true
		areas[filepath.Dir(m.File)] = true
	}
	if len(allMutants) < 12 || len(areas) < 10 {
		t.Errorf("%d mutants in %d packages, want at least 12 in 10", len(allMutants), len(areas))
	}
}

// TestFailuresNameTheirInvariants: the table names failed drills and tests, and their invariants.
func TestFailuresNameTheirInvariants(t *testing.T) {
	drills := "--- FAIL: TestCatalogueHolds (0.00s)\n    --- FAIL: TestCatalogueHolds/region-loss (1.20s)\n        run_test.go:95: FAILED hypothesis: broken: I-2: g1 sent clients; I-31: x\nFAIL\n"
	if got, want := describeFailure(&mutant{Invariant: "I-9"}, drills), "drill region-loss (I-2, I-31)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	tests := "--- FAIL: TestOne (0.00s)\n    --- FAIL: TestOne/case (0.00s)\nFAIL\n"
	if got, want := describeFailure(&mutant{Invariant: "I-9"}, tests), "TestOne (I-9)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := describeFailure(&mutant{}, "panic: a bug\n"); got != "panic: a bug" {
		t.Errorf("%q", got)
	}
}
