package local_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// writeWorkersFile replaces a workers file in one step.
func writeWorkersFile(t *testing.T, file string, workers ...*fakeVLLM) {
	t.Helper()
	var b strings.Builder
	b.WriteString("workers:\n")
	for _, w := range workers {
		fmt.Fprintf(&b, "  - {name: %s, url: %q, gpu: H100}\n", w.name, w.URL)
	}
	if err := os.WriteFile(file+".new", []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}
