package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spillway-lb/spillway/internal/spec"
)

func readReadme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestReadmeSpecIsValid decodes the spec in the README and checks that it fits on a screen.
func TestReadmeSpecIsValid(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readReadme(t), -1)
	if len(blocks) == 0 {
		t.Fatal("the README shows no config")
	}
	for _, b := range blocks {
		if _, err := spec.Decode("README.md", []byte(b[1])); err != nil {
			t.Errorf("%v", err)
		}
		if n := strings.Count(b[1], "\n"); n > 25 {
			t.Errorf("the config has %d lines, which is more than a screen", n)
		}
	}
}

// TestReadmeCommandsExist checks that every command and flag in the README exists.
func TestReadmeCommandsExist(t *testing.T) {
	text := readReadme(t)
	calls := regexp.MustCompile(`(?:\./bin/)?spillway ([a-z|]+)((?: [a-z|-]+)*)`).FindAllStringSubmatch(text, -1)
	if len(calls) < 10 {
		t.Fatalf("only %d commands found", len(calls))
	}
	for _, c := range calls {
		for _, verb := range strings.Split(c[1], "|") {
			cmd, _, err := newRootCommand().Find([]string{verb})
			if err != nil || cmd.Name() != verb {
				t.Errorf("%q: unknown command %q", c[0], verb)
				continue
			}
			for _, flag := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(c[2], -1) {
				if cmd.Flags().Lookup(flag[1]) == nil {
					t.Errorf("%q: %s has no flag --%s", c[0], verb, flag[1])
				}
			}
		}
	}
}

// TestReadmeFitsAScreen bounds the README at 150 lines of at most 100 columns, and requires the two commands that set up a checkout.
func TestReadmeFitsAScreen(t *testing.T) {
	text := readReadme(t)
	if n := strings.Count(text, "\n"); n > 150 {
		t.Errorf("the README has %d lines, more than 150", n)
	}
	for i, line := range strings.Split(text, "\n") {
		if n := utf8.RuneCountInString(line); n > 100 {
			t.Errorf("README.md:%d: %d columns, more than 100", i+1, n)
		}
	}
	for _, command := range []string{"make demo", "make test"} {
		if !strings.Contains(text, command) {
			t.Errorf("the README does not name %q", command)
		}
	}
}
