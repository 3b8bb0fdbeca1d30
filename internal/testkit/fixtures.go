package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// baseFile is the text that the edits of an archive change. An archive without one uses the file of this name in its
// folder.
const baseFile = "base.yaml"

// Fixture is one case of an archive: a text with a mistake and the message that it must produce. An archive holds a
// case as two files. The first is NAME.edit, a change of base.yaml, or NAME.yaml, the whole text. The second is
// NAME.message.
//
// An edit is a unified diff without line numbers. A line that starts with "+" is added, one with "-" is removed, and
// one with a space is context. "@@" stands between two changes. The removed and context lines of a change must occur
// exactly once in the base. A change of added lines only is appended.
type Fixture struct {
	Archive string // path of the archive
	Name    string
	File    string // file name under which the text is decoded: NAME.yaml
	Text    []byte
	Message string // expected
}

// ReadFixtures returns the cases of all archives that match the pattern, at least atLeast.
func ReadFixtures(t testing.TB, pattern string, atLeast int) []Fixture {
	t.Helper()
	archives, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	var all []Fixture
	for _, archive := range archives {
		_, cases := readArchive(t, archive)
		all = append(all, cases...)
	}
	if len(all) < atLeast {
		t.Fatalf("%s: %d cases in %d archives, want at least %d", pattern, len(all), len(archives), atLeast)
	}
	return all
}

// CheckFixtures runs every case of the archives that match the pattern as a subtest and compares the message that run
// returns with the expected one. With update, it writes the messages into the archives instead.
func CheckFixtures(t *testing.T, pattern string, atLeast int, update bool, run func(*testing.T, Fixture) string) {
	t.Helper()
	ReadFixtures(t, pattern, atLeast) // reports every malformed archive before the first case runs
	archives, _ := filepath.Glob(pattern)
	for _, file := range archives {
		archive, cases := readArchive(t, file)
		for _, c := range cases {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+"/"+c.Name, func(t *testing.T) {
				got := run(t, c)
				if update {
					setMessage(archive, c.Name, got)
				} else if diff := cmp.Diff(c.Message, got); diff != "" {
					t.Errorf("%s, case %s (-want +got):\n%s", file, c.Name, diff)
				}
			})
		}
		if !update {
			continue
		}
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func readArchive(t testing.TB, file string) (*txtar.Archive, []Fixture) {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.ReadFile(filepath.Join(filepath.Dir(file), baseFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	cases, err := parseFixtures(file, archive, base)
	if err != nil {
		t.Fatal(err)
	}
	return archive, cases
}

// parseFixtures returns the cases of an archive in its order. base is used when the archive has no base of its own. The
// error joins one error for each malformed case.
func parseFixtures(file string, archive *txtar.Archive, base []byte) (cases []Fixture, _ error) {
	var errs []error
	index := map[string]int{}
	messages := map[string]bool{}
	for _, f := range archive.Files {
		ext := path.Ext(f.Name)
		name, text := strings.TrimSuffix(f.Name, ext), f.Data
		var err error
		switch {
		case f.Name == baseFile:
			base = f.Data
			continue
		case ext == ".message":
			if i, ok := index[name]; !ok || messages[name] {
				errs = append(errs, fmt.Errorf("%s: %s must follow %[3]s.edit or %[3]s.yaml, once", file, f.Name, name))
			} else {
				cases[i].Message, messages[name] = string(f.Data), true
			}
			continue
		case ext == ".edit":
			if text, err = applyEdit(base, f.Data); err != nil {
				errs = append(errs, fmt.Errorf("%s, case %s: %w", file, name, err))
				continue
			}
		case ext != ".yaml":
			errs = append(errs, fmt.Errorf("%s: %s is neither an .edit, a .yaml nor a .message", file, f.Name))
			continue
		}
		if _, twice := index[name]; twice {
			errs = append(errs, fmt.Errorf("%s: two cases are called %s", file, name))
			continue
		}
		index[name] = len(cases)
		cases = append(cases, Fixture{Archive: file, Name: name, File: name + ".yaml", Text: text})
	}
	return cases, errors.Join(errs...)
}

// applyEdit returns the base with an edit made in it; Fixture documents the form of edits.
func applyEdit(base, edit []byte) ([]byte, error) {
	for change := range bytes.SplitSeq(edit, []byte("@@\n")) {
		var before, after []byte
		for line := range bytes.Lines(change) {
			switch line[0] {
			case '+':
				after = append(after, line[1:]...)
			case '-':
				before = append(before, line[1:]...)
			case ' ':
				before, after = append(before, line[1:]...), append(after, line[1:]...)
			default:
				return nil, fmt.Errorf("the line %q of the edit starts with none of \"+\", \"-\" and a space", line)
			}
		}
		if len(before) == 0 {
			base = append(bytes.Clone(base), after...)
			continue
		}
		at, n := findLines(base, before)
		if n != 1 {
			return nil, fmt.Errorf("these lines of the edit occur %d times in the base, want 1 (add context lines):\n%s", n, before)
		}
		base = bytes.Join([][]byte{base[:at], after, base[at+len(before):]}, nil)
	}
	return base, nil
}

// findLines returns the last offset at which whole lines occur in a text, and how often they do.
func findLines(text, lines []byte) (at, n int) {
	for i := 0; i < len(text); {
		if bytes.HasPrefix(text[i:], lines) {
			at, n = i, n+1
		}
		next := bytes.IndexByte(text[i:], '\n')
		if next < 0 {
			break
		}
		i += next + 1
	}
	return at, n
}

// setMessage replaces the expected message of a case, or adds one after its text.
func setMessage(archive *txtar.Archive, name, message string) {
	text := -1
	for i, f := range archive.Files {
		switch f.Name {
		case name + ".message":
			archive.Files[i].Data = []byte(message)
			return
		case name + ".edit", name + ".yaml":
			text = i
		}
	}
	added := txtar.File{Name: name + ".message", Data: []byte(message)}
	archive.Files = append(archive.Files[:text+1], append([]txtar.File{added}, archive.Files[text+1:]...)...)
}
