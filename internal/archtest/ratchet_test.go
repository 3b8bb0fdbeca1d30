package archtest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "lower the baselines in testdata to the present figures")

// listRatchets returns every bounded figure. A share is of functions in the whole module; the others are counts by key.
func listRatchets(t *testing.T) []ratchet {
	_, fset, _ := treeWithTests(t)
	banned, err := parseBannedWords(bannedText)
	if err != nil {
		t.Fatal(err)
	}
	return []ratchet{
		{"oneword", 15, "percent of functions with a one-word name: a name is verb and object, to be found by grep and read without its body", oneWordShare},
		{"typenames", 2, "packages that declare a type of this name: a reader must know which one is meant", typeNamePackages},
		{"words", 0, "words that bannedwords.txt replaces", countBannedWords(fset, banned)},
		{"methods", 40, "methods of one type: a type has one responsibility", typeMethods},
		{"methodfiles", 8, "files with methods of one type: a reader finds them together", typeMethodFiles},
		{"receivers", 2, "types with methods in one file: a file has one subject", fileReceivers},
		{"chaosonly", 0, "exported names that only chaos refers to: production code does not exist for tests", chaosOnlyExports},
	}
}

func TestRatchets(t *testing.T) {
	_, _, files := treeWithTests(t)
	for _, r := range listRatchets(t) {
		t.Run(r.name, func(t *testing.T) {
			now := r.measure(files)
			path := filepath.Join("testdata", r.name+".txt")
			baseline, exists, err := readBaseline(path)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				lowered := now.aboveLimit(r.limit)
				if exists {
					if lowered, err = r.lowerBaseline(now, baseline); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.WriteFile(path, []byte(r.formatBaseline(lowered)), 0o644); err != nil {
					t.Fatal(err)
				}
				baseline = lowered
			}
			for _, problem := range r.compareBaseline(now, baseline) {
				t.Error(problem)
			}
		})
	}
}

func TestBaselineLinesOnlyShrink(t *testing.T) {
	r := ratchet{name: "words", limit: 2, rule: "bad words"}
	count := func(counts map[string]int) figures {
		fs := figures{}
		for key, n := range counts {
			for range n {
				fs.addPlace(key, "x.go:1")
			}
		}
		return fs
	}
	compared := []struct {
		name          string
		now, baseline map[string]int
		want          string
	}{
		{"within the limit", map[string]int{"a": 2}, nil, ""},
		{"over the limit without a line", map[string]int{"a": 3}, nil, "a: 3, allowed 2: bad words (x.go:1"},
		{"at its line", map[string]int{"a": 20}, map[string]int{"a": 20}, ""},
		{"over its line", map[string]int{"a": 21}, map[string]int{"a": 20}, "a: 21, allowed 20"},
		{"a tenth under its line", map[string]int{"a": 18}, map[string]int{"a": 20}, ""},
		{"far under its line", map[string]int{"a": 17}, map[string]int{"a": 20}, "still allows 20: lower it with go test"},
		{"gone", nil, map[string]int{"a": 20}, "a: 0, but testdata/words.txt still allows 20"},
	}
	for _, c := range compared {
		got := strings.Join(r.compareBaseline(count(c.now), c.baseline), "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	lowered := []struct {
		name          string
		now, baseline map[string]int
		want, err     string
	}{
		{"lowers", map[string]int{"a": 5, "b": 9}, map[string]int{"a": 20, "b": 9}, "a 5\nb 9\n", ""},
		{"drops what needs no line", map[string]int{"a": 2}, map[string]int{"a": 20}, "", ""},
		{"follows a renamed package", map[string]int{"b": 20}, map[string]int{"a": 20}, "b 20\n", ""},
		{"refuses a rise", map[string]int{"a": 21, "b": 3}, map[string]int{"a": 20, "b": 30}, "", "a from 20 to 21"},
		{"refuses a new line", map[string]int{"a": 10, "b": 10}, map[string]int{"a": 20}, "", "b from 2 to 10"},
		{"refuses to give the renamed package's figure twice", map[string]int{"b": 20, "c": 20}, map[string]int{"a": 20}, "", "c from 2 to 20"},
		{"refuses more than the renamed package had", map[string]int{"b": 21}, map[string]int{"a": 20}, "", "b from 2 to 21"},
	}
	for _, c := range lowered {
		next, err := r.lowerBaseline(count(c.now), c.baseline)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got %v, want an error with %q", c.name, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		text := r.formatBaseline(next)
		if !strings.HasSuffix(text, "never rise.\n"+c.want) {
			t.Errorf("%s: got %q, want it to end in %q", c.name, text, c.want)
		}
		if again, err := parseBaseline(text); err != nil || len(again) != len(next) {
			t.Errorf("%s: reading what was written: %v, %v", c.name, again, err)
		}
	}
}

func TestBaselineFileIsChecked(t *testing.T) {
	got, err := parseBaseline("# comment\n\na 7\nb 3\na 5\na 6\n")
	if err != nil || got["a"] != 5 || got["b"] != 3 || len(got) != 2 {
		t.Errorf("got %v, %v, want the smallest figure of a repeated key", got, err)
	}
	for _, bad := range []string{"a", "a b", "a 1 2"} {
		if _, err := parseBaseline(bad); err == nil {
			t.Errorf("%q is accepted as a baseline line", bad)
		}
	}
}
