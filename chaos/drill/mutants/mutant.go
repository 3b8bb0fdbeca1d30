package main

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
)

// mutant is one deliberate defect of the product.
type mutant struct {
	Name string
	// File is the changed file, from the root of the repository. Old occurs in it exactly once and is replaced by New.
	File, Old, New string
	// Invariant is the invariant that the defect breaks, for tests whose output names none; empty: none of the list covers it.
	Invariant string
	// Catchers are the tests of which at least one must fail.
	Catchers []catcher
}

// catcher is a set of tests of one package.
type catcher struct{ Package, Run string }

// inDrills runs drills of the catalogue in the simulator.
func inDrills(names string) catcher {
	return catcher{"./chaos/drill/virtual", "^TestCatalogueHolds$/^(" + names + ")$"}
}

// inTests runs tests of a package.
func inTests(pkg, names string) catcher { return catcher{"./" + pkg, "^(" + names + ")$"} }

// mutateFile returns the file with the defect.
func (m *mutant) mutateFile(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
	if err != nil {
		return nil, fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	if n := bytes.Count(text, []byte(m.Old)); n != 1 {
		return nil, fmt.Errorf("mutant %s: %q is in %s %d times, want once: the code has changed, so write the mutant again", m.Name, m.Old, m.File, n)
	}
	out := bytes.Replace(text, []byte(m.Old), []byte(m.New), 1)
	if _, err := parser.ParseFile(token.NewFileSet(), m.File, out, parser.SkipObjectResolution); err != nil {
		return nil, fmt.Errorf("mutant %s is no Go: %w", m.Name, err)
	}
	return out, nil
}
