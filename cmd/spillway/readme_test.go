package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/spec"
)

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestReadmeSpecIsValid keeps the config on one screen one that works.
func TestReadmeSpecIsValid(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readme(t), -1)
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

// TestReadmeCommandsExist walks every `spillway VERB ...` of the README through the command tree.
func TestReadmeCommandsExist(t *testing.T) {
	text := readme(t)
	if n := strings.Count(text, "\n"); n > 200 {
		t.Errorf("the README has %d lines, more than anyone reads", n)
	}
	calls := regexp.MustCompile(`(?:\./bin/)?spillway ([a-z|]+)((?: [a-z|-]+)*)`).FindAllStringSubmatch(text, -1)
	if len(calls) < 10 {
		t.Fatalf("only %d commands found", len(calls))
	}
	for _, c := range calls {
		for _, verb := range strings.Split(c[1], "|") {
			cmd, _, err := newRoot().Find([]string{verb})
			if err != nil || cmd.Name() != verb {
				t.Errorf("%q: there is no verb %q", c[0], verb)
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
