package spec_test

import (
	"flag"
	"os"
	"regexp"
	"testing"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// mistakes are specs with one mistake each, named after it, and the messages that they produce.
const (
	mistakes    = "testdata/mistakes/*.txtar"
	minMistakes = 190
)

var updateGolden = flag.Bool("update", false, "write the expected messages again")

// TestMistakesMatchGolden decodes specs with one mistake each and compares the printed messages.
func TestMistakesMatchGolden(t *testing.T) {
	testkit.CheckFixtures(t, mistakes, minMistakes, *updateGolden, func(t *testing.T, f testkit.Fixture) string {
		_, err := spec.Decode(f.File, f.Text)
		if err == nil {
			t.Fatal("the spec was taken")
		}
		return err.Error() + "\n"
	})
}

// TestMistakesChangeAValidSpec: the spec that the cases change has no mistake of its own.
func TestMistakesChangeAValidSpec(t *testing.T) {
	text, err := os.ReadFile("testdata/mistakes/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := spec.Decode("base.yaml", text); err != nil {
		t.Error(err)
	}
}

// TestMistakesHideKeys searches all printed messages of the specs above for their keys.
func TestMistakesHideKeys(t *testing.T) {
	secret := regexp.MustCompile(`(?i)4242|horse|battery|sesame|hunter2|9f86|sk-live`)
	for _, f := range testkit.ReadFixtures(t, mistakes, minMistakes) {
		if found := secret.FindString(f.Message); found != "" {
			t.Errorf("%s, case %s shows %q", f.Archive, f.Name, found)
		}
	}
}
