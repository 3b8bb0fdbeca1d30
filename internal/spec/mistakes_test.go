package spec_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-lb/spillway/internal/spec"
)

var updateGolden = flag.Bool("update", false, "write the golden files again")

// TestMistakesMatchGolden decodes specs with one mistake each, named after it, and compares the printed
// messages.
func TestMistakesMatchGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/mistakes/*.yaml")
	if err != nil || len(files) < 30 {
		t.Fatalf("found %d files, %v; want at least 30", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = spec.Decode(filepath.Base(file), text)
			if err == nil {
				t.Fatal("the spec was taken")
			}
			compareGolden(t, strings.TrimSuffix(file, ".yaml")+".golden", err.Error()+"\n")
		})
	}
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *updateGolden {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
}

// TestMistakesHideKeys searches all printed messages of the specs above for their keys.
func TestMistakesHideKeys(t *testing.T) {
	files, err := filepath.Glob("testdata/mistakes/*.golden")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d files, %v", len(files), err)
	}
	secret := regexp.MustCompile(`(?i)4242|horse|battery|sesame|hunter2|9f86|sk-live`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := secret.FindString(string(text)); found != "" {
			t.Errorf("%s shows %q", file, found)
		}
	}
}
