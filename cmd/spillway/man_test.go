package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// visitCommands calls visit with every visible command, those that cobra adds included.
func visitCommands(visit func(*cobra.Command)) {
	root := newRootCommand()
	root.InitDefaultCompletionCmd()
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		visit(c)
		for _, child := range c.Commands() {
			if child.IsAvailableCommand() {
				walk(child)
			}
		}
	}
	walk(root)
}

// visibleFlags lists the flags of a command that its help shows.
func visibleFlags(c *cobra.Command) (names []string) {
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	add := func(f *pflag.Flag) {
		if !f.Hidden && f.Deprecated == "" {
			names = append(names, "--"+f.Name)
		}
	}
	c.LocalFlags().VisitAll(add)
	c.InheritedFlags().VisitAll(add)
	return names
}

// listRequiredFlags lists the required flags of a command, each with a value.
func listRequiredFlags(c *cobra.Command) (words []string) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0 {
			words = append(words, "--"+f.Name, "x")
		}
	})
	return words
}

// TestManPagesContainEveryCommandAndFlag: each visible command has a page with its subcommands and flags.
func TestManPagesContainEveryCommandAndFlag(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	if _, _, err := runSpillway(t, "man", dir); err != nil {
		t.Fatal(err)
	}
	pages, flags := 0, 0
	visitCommands(func(c *cobra.Command) {
		text, err := os.ReadFile(filepath.Join(dir, manName(c)+".1"))
		if err != nil {
			t.Error(err)
			return
		}
		page := string(text)
		if want := `" 1 "2023\-11\-14" "Spillway ` + escapeRoff(version) + `"`; !strings.Contains(page, want) {
			t.Errorf("%s: the title does not contain %s", manName(c), want)
		}
		pages++
		for _, f := range visibleFlags(c) {
			flags++
			if !regexp.MustCompile(`(?m)^\.B "(\\-\w, )?` + regexp.QuoteMeta(escapeRoff(f)) + `[ "]`).MatchString(page) {
				t.Errorf("%s: no entry for %s", manName(c), f)
			}
		}
		for _, child := range c.Commands() {
			if child.IsAvailableCommand() && !strings.Contains(page, "\n.B \""+escapeRoff(child.Name())+"\"\n") {
				t.Errorf("%s: no entry for %s", manName(c), child.Name())
			}
		}
	})
	t.Logf("%d pages, %d flags", pages, flags)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != pages {
		t.Errorf("the folder has %d pages (%v), want %d: a hidden command has none", len(entries), err, pages)
	}
}

// TestManPagesRenderWithoutWarnings checks the pages with groff, where it is installed.
func TestManPagesRenderWithoutWarnings(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not installed")
	}
	dir := t.TempDir()
	if _, _, err := runSpillway(t, "man", dir); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), groff, append([]string{"-man", "-Tutf8", "-ww", "-z"}, pages...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("groff: %v\n%s", err, out)
	}
}

// TestManTextKeepsLists: prose is filled, aligned lists become tagged paragraphs, other indented lines stay as they are.
func TestManTextKeepsLists(t *testing.T) {
	var b strings.Builder
	printManText(&b, "First\nline. Columns:\n  STATE     of the reports:\n            stale or not\n  READY     workers\n\n    a literal  \n\n.dot -x \\n")
	want := `First
line. Columns:
.TP
.B "STATE"
of the reports:
stale or not
.TP
.B "READY"
workers
.PP
.PP
.PP
.nf
    a literal  
.fi
.PP
.PP
\&.dot \-x \en
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

func TestManRefusesInvalidDate(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "today")
	if _, _, err := runSpillway(t, "man", t.TempDir()); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("got %v, want an error that names SOURCE_DATE_EPOCH", err)
	}
}

// TestCompletionOffersEveryCommandAndFlag runs what the completion scripts of all shells run, `spillway __complete`.
func TestCompletionOffersEveryCommandAndFlag(t *testing.T) {
	visitCommands(func(c *cobra.Command) {
		path := strings.Fields(c.CommandPath())[1:]
		complete := func(words ...string) []string {
			out, _, err := runSpillway(t, slices.Concat([]string{cobra.ShellCompRequestCmd}, path, words)...)
			if err != nil {
				t.Fatalf("%s: completing %q: %v", c.CommandPath(), words, err)
			}
			var offered []string
			for line := range strings.Lines(out) {
				name, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
				offered = append(offered, name)
			}
			return offered
		}
		// As long as required flags are missing, only they are offered.
		required := listRequiredFlags(c)
		offered := append(complete("--"), complete(append(required, "--")...)...)
		for _, f := range visibleFlags(c) {
			if !slices.Contains(offered, f) && !slices.Contains(offered, f+"=") {
				t.Errorf("%s: %s is not offered: %q", c.CommandPath(), f, offered)
			}
		}
		offered = complete("")
		for _, child := range c.Commands() {
			if child.IsAvailableCommand() && !slices.Contains(offered, child.Name()) {
				t.Errorf("%s: %s is not offered: %q", c.CommandPath(), child.Name(), offered)
			}
		}
	})
}

// TestCompletionScriptsParse writes the script of each shell and lets the shell parse it, where it is installed.
func TestCompletionScriptsParse(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, _, err := runSpillway(t, "completion", shell)
		if err != nil || !strings.Contains(script, cobra.ShellCompRequestCmd) {
			t.Errorf("%s: %v, %d bytes", shell, err, len(script))
			continue
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		file := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), path, "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s -n: %v\n%s", shell, err, out)
		}
	}
}
