package load

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestPublicTracesCoverWorkloads: every public trace that a workload opens is in the list, with all its facts.
func TestPublicTracesCoverWorkloads(t *testing.T) {
	var names []string
	for _, p := range PublicTraces() {
		names = append(names, p.Name)
		if p.Title == "" || p.Size <= 0 || p.Changes == "" || !strings.HasPrefix(p.Source, "https://") {
			t.Errorf("%s lacks a title, size, source or changes: %+v", p.Name, p)
		}
		if p.Licence != "Apache-2.0" && p.Licence != "CC-BY-4.0" {
			t.Errorf("%s: unexpected licence %q", p.Name, p.Licence)
		}
		if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(p.SHA256) {
			t.Errorf("%s: %q is not a SHA-256", p.Name, p.SHA256)
		}
	}
	for _, w := range []Workload{{Name: "w1"}, {Name: "w2"}, {Name: "w3"}, {Name: "w4"}, {Name: "w5"}, {Name: "w5", Models: []string{"deepseek-r1", "mm-image"}}} {
		dir := t.TempDir()
		w.Traces = dir
		_, err := OpenWorkload(w)
		if err == nil {
			t.Fatalf("%s was opened in an empty folder", w.Name)
		}
		if !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(err.Error(), filepath.Join(dir, filepath.FromSlash(n))) }) {
			t.Errorf("%s reads a file that is not listed: %v", w.Name, err)
		}
		w.Traces = ""
		if _, err = OpenWorkload(w); err == nil || !strings.Contains(err.Error(), "use --traces DIR or set SPILLWAY_TRACES") {
			t.Errorf("%s without a folder of traces: %v", w.Name, err)
		}
	}
}

func TestPublicTracesAreIntactInTheGivenFolder(t *testing.T) {
	dir := testkit.TracesDir(t)
	for _, p := range PublicTraces() {
		if state, err := p.CheckIn(dir); err != nil || state != TraceIntact {
			t.Errorf("%s: %s, %v", p.Name, state, err)
		}
		if info, err := os.Stat(filepath.Join(dir, p.Name)); err != nil || info.Size() != p.Size {
			t.Errorf("%s: %v, want %d bytes", p.Name, err, p.Size)
		}
	}
}

func TestCheckInTellsIntactMissingAndChangedFiles(t *testing.T) {
	dir := t.TempDir()
	sum := sha256.Sum256([]byte("a trace"))
	p := PublicTrace{Name: "some/trace.csv", SHA256: hex.EncodeToString(sum[:])}
	check := func(want TraceState) {
		t.Helper()
		if state, err := p.CheckIn(dir); err != nil || state != want {
			t.Errorf("%s, %v, want %s", state, err, want)
		}
	}
	check(TraceMissing)
	file := filepath.Join(dir, "some", "trace.csv")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]TraceState{"a trace": TraceIntact, "a race": TraceDiffers} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		check(want)
	}
}
