package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

const numbers = "-- base.yaml --\none: 1\ntwo: 2\nlist:\n  - 1\n  - 1\n"

func TestEditsChangeTheBase(t *testing.T) {
	for name, c := range map[string]struct{ edit, want string }{
		"replaced":     {"-two: 2\n+two: II\n", "one: 1\ntwo: II\nlist:\n  - 1\n  - 1\n"},
		"removed":      {"-one: 1\n", "two: 2\nlist:\n  - 1\n  - 1\n"},
		"inserted":     {" one: 1\n+half: 0.5\n", "one: 1\nhalf: 0.5\ntwo: 2\nlist:\n  - 1\n  - 1\n"},
		"appended":     {"+three: 3\n", "one: 1\ntwo: 2\nlist:\n  - 1\n  - 1\nthree: 3\n"},
		"two changes":  {"-one: 1\n@@\n-two: 2\n+two: 3\n", "two: 3\nlist:\n  - 1\n  - 1\n"},
		"with context": {" list:\n-  - 1\n+  - 7\n", "one: 1\ntwo: 2\nlist:\n  - 7\n  - 1\n"},
	} {
		cases, err := parseFixtures("numbers.txtar", txtar.Parse([]byte(numbers+"-- a.edit --\n"+c.edit)), nil)
		if err != nil || len(cases) != 1 || string(cases[0].Text) != c.want {
			t.Errorf("%s: %v, %v, want %q", name, cases, err, c.want)
		}
	}
}

func TestMalformedArchivesAreReportedWithTheirCase(t *testing.T) {
	for want, files := range map[string]string{
		"numbers.txtar, case a: these lines of the edit occur 2 times in the base":           "-- a.edit --\n-  - 1\n",
		"numbers.txtar, case a: these lines of the edit occur 0 times in the base":           "-- a.edit --\n-wo: 2\n",
		"numbers.txtar, case a: the line \"one: 1\\n\" of the edit starts with none of":      "-- a.edit --\none: 1\n",
		"numbers.txtar: two cases are called a":                                              "-- a.edit --\n+a: 1\n-- a.yaml --\na: 1\n",
		"numbers.txtar: b.message must follow b.edit or b.yaml, once":                        "-- b.message --\nx\n",
		"numbers.txtar: a.txt is neither an .edit, a .yaml nor a .message":                   "-- a.txt --\nx\n",
		"numbers.txtar: a.message must follow a.edit or a.yaml, once":                        "-- a.yaml --\n-- a.message --\nx\n-- a.message --\ny\n",
		"numbers.txtar, case c: the line \"\\n\" of the edit starts with none of \"+\", \"-": "-- c.edit --\n-one: 1\n\n",
	} {
		_, err := parseFixtures("numbers.txtar", txtar.Parse([]byte(numbers+files)), nil)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestUpdateWritesOnlyMessages: -update replaces wrong messages, adds missing ones and leaves everything else.
func TestUpdateWritesOnlyMessages(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "numbers.txtar")
	const before = "Numbers.\n\n-- a.edit --\n+three: 3\n-- b.yaml --\nfour: 4\n-- b.message --\nwrong\n"
	const after = "Numbers.\n\n-- a.edit --\n+three: 3\n-- a.message --\none: 1 three: 3\n-- b.yaml --\nfour: 4\n-- b.message --\nfour: 4\n"
	for name, text := range map[string]string{file: before, filepath.Join(dir, baseFile): "one: 1\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	join := func(_ *testing.T, f Fixture) string {
		return strings.ReplaceAll(strings.TrimSpace(string(f.Text)), "\n", " ") + "\n"
	}
	CheckFixtures(t, file, 2, true, join)
	got, err := os.ReadFile(file)
	if diff := cmp.Diff(after, string(got)); err != nil || diff != "" {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	CheckFixtures(t, file, 2, false, join)
}
