package virtual

import (
	"bytes"
	"testing"

	"github.com/spillway-lb/spillway/chaos/drill"
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
