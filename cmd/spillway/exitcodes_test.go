package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExitCodesDocument: the page lists every exit code once, and mistakes in a command line exit with 2.
func TestExitCodesDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(docsDir, "exit-codes.md"))
	if err != nil {
		t.Fatal(err)
	}
	codes := []int{0, 1, exitUsage, exitForbidden, exitVoid, exitOutcomeUnknown, exitInterrupted, exitUnreachable, exitDenied, exitWrongServer}
	seen := map[int]bool{}
	for _, code := range codes {
		if seen[code] || strings.Count(string(text), fmt.Sprintf("\n| %d |", code)) != 1 {
			t.Errorf("code %d is not unique in the code and the page", code)
		}
		seen[code] = true
	}
	if rows := strings.Count(string(text), "\n| ") - 1; rows != len(codes) {
		t.Errorf("the page has %d codes, want %d", rows, len(codes))
	}
	for _, args := range [][]string{
		{"status", "--nothing"},
		{"status", "extra"},
		{"get", "foo"},
		{"get", "regions", "-o", "xml"},
		{"apply"},
		{"drain", "region"},
		{"describe", "worker"},
		{"cordon", "region", "fra"},
		{"context", "use"},
		{"get", "workers", "--sort"},
	} {
		if _, _, err := runSpillway(t, args...); err == nil || exitCodeOf(err) != exitUsage {
			t.Errorf("%v: %v exits with %d, want %d", args, err, exitCodeOf(err), exitUsage)
		}
	}
}
