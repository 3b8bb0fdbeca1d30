package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newManCommand returns the hidden command that writes the manual pages. The release build runs it.
func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write a manual page for each command to a folder",
		Long:    "Write a manual page for each command to a folder. The pages are dated by $SOURCE_DATE_EPOCH, in seconds since 1970.",
		Example: "  spillway man ./man && man ./man/spillway.1",
		Hidden:  true,
		Args:    requireArgRange("man DIR", 1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			date, err := parseSourceDate(os.Getenv("SOURCE_DATE_EPOCH"))
			if err != nil {
				return err
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("making the folder of the manual pages: %w", err)
			}
			return writeManPages(args[0], cmd.Root(), date)
		},
	}
}

// parseSourceDate returns the day of SOURCE_DATE_EPOCH, or "" without one: a page without a date is the same on each day.
func parseSourceDate(epoch string) (string, error) {
	if epoch == "" {
		return "", nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return "", fmt.Errorf("SOURCE_DATE_EPOCH %q is not a number of seconds since 1970: unset it or write one", epoch)
	}
	return time.Unix(seconds, 0).UTC().Format(time.DateOnly), nil
}

// writeManPages writes the page of cmd and of all commands below it: spillway.1, spillway-members-add.1.
func writeManPages(dir string, cmd *cobra.Command, date string) error {
	var page bytes.Buffer
	printManPage(&page, cmd, date)
	if err := os.WriteFile(filepath.Join(dir, manName(cmd)+".1"), page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing a manual page: %w", err)
	}
	for _, child := range cmd.Commands() {
		if !child.IsAvailableCommand() { // hidden, deprecated or the help command
			continue
		}
		if err := writeManPages(dir, child, date); err != nil {
			return err
		}
	}
	return nil
}

// manName returns the name of a command's page: "spillway-members-add".
func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// printManPage writes the page of one command in the man macros of roff. cobra's own generator goes through Markdown, which
// joins the lines of aligned lists.
func printManPage(w io.Writer, cmd *cobra.Command, date string) {
	fmt.Fprintf(w, ".TH %s 1 %s %s %s\n", quoteRoff(strings.ToUpper(manName(cmd))), quoteRoff(date), quoteRoff("Spillway "+version), quoteRoff("Spillway manual"))
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", escapeRoff(manName(cmd)), escapeRoff(cmd.Short))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B %s\n", quoteRoff(cmd.UseLine()))
	printSection(w, "DESCRIPTION")
	printManText(w, cmp.Or(cmd.Long, cmd.Short+"."))
	printManCommands(w, cmd)
	printManFlags(w, cmd)
	if cmd.Example != "" {
		printSection(w, "EXAMPLES")
		printLiteral(w, cmd.Example)
	}
	printManReferences(w, cmd)
}

func printSection(w io.Writer, title string) { fmt.Fprintf(w, ".SH %s\n", title) }

// printTagged writes an entry of a list: a term in bold and its indented text.
func printTagged(w io.Writer, term, text string) {
	fmt.Fprintf(w, ".TP\n.B %s\n", quoteRoff(term))
	for line := range strings.Lines(text) {
		fmt.Fprintln(w, escapeRoff(strings.TrimSpace(line)))
	}
}

// printLiteral writes lines as they are.
func printLiteral(w io.Writer, text string) {
	fmt.Fprintln(w, ".nf")
	for line := range strings.Lines(text) {
		fmt.Fprintln(w, escapeRoff(strings.TrimRight(line, "\n")))
	}
	fmt.Fprintln(w, ".fi")
}

func printManCommands(w io.Writer, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	printSection(w, "COMMANDS")
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			printTagged(w, child.Name(), child.Short)
		}
	}
}

func printManFlags(w io.Writer, cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	printSection(w, "OPTIONS")
	printFlag := func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		term := "--" + f.Name
		if f.Shorthand != "" {
			term = "-" + f.Shorthand + ", " + term
		}
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			term += " " + value
		}
		if hasDefault(f) && !strings.Contains(usage, "default") {
			usage += " (default " + f.DefValue + ")"
		}
		printTagged(w, term, usage)
	}
	cmd.LocalFlags().VisitAll(printFlag)
	cmd.InheritedFlags().VisitAll(printFlag)
}

// hasDefault reports whether a flag has a default that its type does not imply.
func hasDefault(f *pflag.Flag) bool {
	switch f.DefValue {
	case "", "0", "0s", "false", "[]":
		return false
	}
	return true
}

func printManReferences(w io.Writer, cmd *cobra.Command) {
	var pages []string
	if cmd.HasParent() {
		pages = append(pages, manName(cmd.Parent()))
	}
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			pages = append(pages, manName(child))
		}
	}
	printSection(w, "SEE ALSO")
	for i, p := range pages {
		comma := ","
		if i == len(pages)-1 {
			comma = ""
		}
		fmt.Fprintf(w, ".BR %s (1)%s\n", escapeRoff(p), comma)
	}
}

// listLine matches an entry of an aligned list: a term, two spaces or more, and the text.
var listLine = regexp.MustCompile(`^( *)(\S.*?)(:?)  +(\S.*)$`)

// printManText writes the long description of a command. Prose is filled to the reader's width, entries of aligned lists become
// tagged paragraphs, other indented lines stay as they are.
func printManText(w io.Writer, text string) {
	const (
		prose = iota
		listEntry
		literal
	)
	state := prose
	enter := func(next int) {
		if state == literal && next != literal {
			fmt.Fprintln(w, ".fi")
		}
		switch {
		case next == prose && state != prose:
			fmt.Fprintln(w, ".PP")
		case next == literal && state != literal:
			fmt.Fprintln(w, ".PP\n.nf")
		}
		state = next
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		m := listLine.FindStringSubmatch(line)
		indented := strings.HasPrefix(line, " ")
		switch {
		case line == "":
			enter(prose)
			fmt.Fprintln(w, ".PP")
		case m != nil && (m[1] != "" || m[3] != ""):
			enter(listEntry)
			printTagged(w, m[2]+m[3], m[4])
		case indented && state == listEntry:
			fmt.Fprintln(w, escapeRoff(strings.TrimSpace(line)))
		case indented:
			enter(literal)
			fmt.Fprintln(w, escapeRoff(line))
		default:
			enter(prose)
			fmt.Fprintln(w, escapeRoff(line))
		}
	}
	enter(prose)
}

// escapeRoff escapes a line of text: backslashes, hyphens (so that flags can be copied) and a leading control character.
func escapeRoff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...").Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}

// quoteRoff quotes one argument of a macro.
func quoteRoff(arg string) string {
	return `"` + strings.ReplaceAll(escapeRoff(arg), `"`, `\(dq`) + `"`
}
