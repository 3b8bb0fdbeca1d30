package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutantRun builds the tests with one mutant at a time.
type mutantRun struct {
	root, goTool string
	sound        map[catcher]bool // tests that pass without a mutant
}

// testResult is the result of tests.
type testResult struct {
	passed bool
	output string
}

// errNotBuilt: tests that do not build show nothing.
var errNotBuilt = errors.New("the tests do not build")

// runTests runs tests, with a file that replaces files of the tree; empty: none.
func (r *mutantRun) runTests(ctx context.Context, c catcher, overlay string) (testResult, error) {
	args := []string{"test", "-vet=off", "-count=1", "-timeout=5m", "-run", c.Run}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	args = append(args, c.Package)
	if usesRapid(filepath.Join(r.root, filepath.FromSlash(c.Package))) {
		args = append(args, "-args", "-rapid.nofailfile") // a failure is expected: it leaves no file in the tree
	}
	cmd := exec.CommandContext(ctx, r.goTool, args...)
	cmd.Dir = r.root
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return testResult{}, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return testResult{}, err
	}
	if bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")) || bytes.Contains(out, []byte("no tests to run")) {
		return testResult{}, fmt.Errorf("%w:\n%s", errNotBuilt, out)
	}
	return testResult{err == nil, string(out)}, nil
}

// usesRapid reports whether the tests of a folder know the flags of package rapid.
func usesRapid(dir string) bool {
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(names, func(name string) bool {
		text, err := os.ReadFile(name)
		return err == nil && bytes.Contains(text, []byte(`"pgregory.net/rapid"`))
	})
}

// writeOverlay writes the mutant's file and the overlay that puts it in place of the tree's.
func (r *mutantRun) writeOverlay(m *mutant, dir string) (string, error) {
	text, err := m.mutateFile(r.root)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(changed, text, 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(r.root, filepath.FromSlash(m.File)): changed}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}

// findCatcher returns what catches a mutant; empty: nothing does.
func (r *mutantRun) findCatcher(ctx context.Context, m *mutant) (string, error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := r.writeOverlay(m, dir)
	if err != nil {
		return "", err
	}
	var caught []string
	for _, c := range m.Catchers {
		if !r.sound[c] {
			res, err := r.runTests(ctx, c, "")
			if err != nil {
				return "", err
			}
			if !res.passed {
				return "", fmt.Errorf("%s of %s fails without a mutant:\n%s", c.Run, c.Package, res.output)
			}
			r.sound[c] = true
		}
		res, err := r.runTests(ctx, c, overlay)
		if err != nil {
			return "", fmt.Errorf("mutant %s: %w", m.Name, err)
		}
		if !res.passed {
			caught = append(caught, describeFailure(m, res.output))
		}
	}
	return strings.Join(caught, "; "), nil
}

var (
	failedTest    = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)
	invariantName = regexp.MustCompile(`\bI-[0-9]+\b`)
	stoppedTest   = regexp.MustCompile(`(?m)^panic: .*`)
)

// describeFailure names the failed drills and tests with the invariants that they report.
func describeFailure(m *mutant, output string) string {
	var names []string
	for _, f := range failedTest.FindAllStringSubmatch(output, -1) {
		name := f[1]
		if drillName, ok := strings.CutPrefix(name, "TestCatalogueHolds/"); ok {
			name = "drill " + drillName
		}
		if name != "TestCatalogueHolds" && !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	invariants := invariantName.FindAllString(output, -1)
	if m.Invariant != "" && !slices.Contains(invariants, m.Invariant) && len(names) > 0 && !strings.HasPrefix(names[0], "drill") {
		invariants = append(invariants, m.Invariant)
	}
	slices.Sort(invariants)
	invariants = slices.Compact(invariants)
	out := strings.Join(names, ", ")
	if out == "" {
		out = stoppedTest.FindString(output)
	}
	if len(invariants) > 0 {
		out += " (" + strings.Join(invariants, ", ") + ")"
	}
	return out
}
