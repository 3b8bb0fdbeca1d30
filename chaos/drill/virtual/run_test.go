package virtual

import (
	"bytes"
	"testing"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// runVirtual runs a drill of the catalogue.
func runVirtual(t *testing.T, name string, seed uint64) (*drill.DrillFile, *drill.EventLog) {
	t.Helper()
	f, err := drill.FindDrill(name)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Run(t.Context(), f, Config{Seed: seed, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return f, l
}

// TestSameSeedGivesTheSameLog: a virtual run is the same to the last byte for a seed, and another one for another seed.
func TestSameSeedGivesTheSameLog(t *testing.T) {
	write := func(seed uint64) (string, []byte) {
		_, l := runVirtual(t, "region-loss", seed)
		var b bytes.Buffer
		chain, err := l.WriteLog(&b)
		if err != nil {
			t.Fatal(err)
		}
		return chain, b.Bytes()
	}
	a, text := write(7)
	b, again := write(7)
	if a != b || !bytes.Equal(text, again) {
		t.Error("two runs of one seed differ")
	}
	if c, _ := write(8); c == a {
		t.Error("two seeds give one log")
	}
	l, chain, err := drill.ReadLog(bytes.NewReader(text))
	if err != nil || chain != a {
		t.Fatalf("reading it back: %v, chain %s, want %s", err, chain, a)
	}
	f, err := drill.ParseFile("header", []byte(l.Header.Drill))
	if err != nil {
		t.Fatal(err)
	}
	v := drill.Judge(f, l)
	t.Logf("%s: %s", v.Outcome, v.Why)
	for _, c := range v.Hypothesis {
		t.Logf("%v %s: %s", c.Holds, c.Text, c.Measured)
	}
	for _, r := range v.Ladder.Rungs {
		t.Logf("%+v", r)
	}
	for _, r := range v.Ladder.Observers {
		t.Logf("   %+v", r)
	}
	for _, in := range v.Invariants {
		t.Logf("%+v", in)
	}
}

// TestCatalogueHolds: every drill that the simulator can carry passes, except for one with an open finding, which fails for that reason;
// the others state why they run live only.
func TestCatalogueHolds(t *testing.T) {
	all, err := drill.LoadCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, f := range all {
		if why := Unsupported(f); why != "" {
			if f.LiveOnly == "" {
				t.Errorf("%s cannot run in the simulator and does not state that: %s", f.Name, why)
			}
			continue
		}
		ran++
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			if testkit.RaceDetector && f.Name != "region-loss" {
				t.Skip("not under the race detector")
			}
			l, err := Run(t.Context(), f, Config{Seed: 1, Version: "test"})
			if err != nil {
				t.Fatal(err)
			}
			v := drill.Judge(f, l)
			if f.Open == "" && v.Outcome != drill.Passed || f.Open != "" && v.Outcome != drill.FailedHypothesis {
				t.Errorf("%s: %s (open finding: %q)", v.Outcome, v.Why, f.Open)
				for _, in := range v.Invariants {
					if in.Status == drill.InvariantBroken {
						t.Errorf("%s is broken: %s", in.ID, in.First)
					}
				}
			}
			held := 0
			for _, in := range v.Invariants {
				if in.Status == drill.InvariantHeld {
					held++
				}
			}
			if held < 11 {
				t.Errorf("%d invariants were compared, want at least 11", held)
			}
		})
	}
	if ran < 30 {
		t.Errorf("%d drills run in the simulator, want at least 30", ran)
	}
}
