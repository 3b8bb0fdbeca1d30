package consensus

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const goldenStages = "log-stages.txt"

// drawStage makes what a command says of stages, which often fits the state.
func drawStage(t *rapid.T, s *State, c *command) {
	switch c.Kind {
	case kindStage:
		c.Trial = &Trial{Regions: []string{"eu"}, Window: time.Minute}
		c.Replace = rapid.Bool().Draw(t, "replace")
	case kindPutSpec:
		c.Replace = rapid.Bool().Draw(t, "replace")
		switch rapid.IntRange(0, 2).Draw(t, "way") {
		case 1:
			c.Trial = &Trial{Guard: "g", Window: time.Minute}
		case 2:
			c.Ends, c.Action = 1, "promote"
			if s.Stage != nil {
				c.Ends, c.Body = s.Stage.Number, s.Stage.Body
			}
		}
	case kindEndStage, kindMarkStage:
		c.Ends, c.Action = 1, "rollback"
		c.Elapsed = time.Duration(rapid.IntRange(0, 90).Draw(t, "elapsed")) * time.Second
		if s.Stage != nil {
			c.Ends = s.Stage.Number
		}
	}
}

// book applies commands in turn and fails the test on an answer other than wanted.
type book struct {
	t *testing.T
	s *State
}

func (b *book) do(want code, c command) result {
	b.t.Helper()
	c.At, c.Actor = noon, "alice"
	next, r := apply(b.s, entry{index: b.s.Index + 1, term: 1, data: must(b.t, c)}, checks{})
	if r.Code != want {
		b.t.Fatalf("%+v is answered %+v, want %s", c, r, want)
	}
	b.s = next
	return r
}

func inForce(t *testing.T, s *State, version uint64, body string) {
	t.Helper()
	if s.SpecVersion != version || string(s.Spec) != body {
		t.Fatalf("spec %d, %q, is in force; want %d, %q", s.SpecVersion, s.Spec, version, body)
	}
}

// TestStageInOneRegion goes through each way that a stage in some regions can end.
func TestStageInOneRegion(t *testing.T) {
	eu := &Trial{Regions: []string{"eu"}, Guard: "error_rate<2%", Window: time.Minute}
	b := &book{t, &State{}}
	b.do(codeRefused, command{Kind: kindStage, Trial: eu, Body: []byte("two")}) // beside nothing
	b.do(codeOK, command{Kind: kindPutSpec, Body: []byte("one")})
	b.do(codeConflict, command{Kind: kindStage, BasedOn: 9, Trial: eu, Body: []byte("two")})
	b.do(codeRefused, command{Kind: kindStage, BasedOn: 1, Trial: &Trial{}, Body: []byte("two")})

	n := b.do(codeOK, command{Kind: kindStage, BasedOn: 1, Trial: eu, Body: []byte("two")}).Value
	inForce(t, b.s, 1, "one")
	if g := b.s.Stage; g.Number != n || string(g.Body) != "two" || !g.In("eu") || g.In("us") || g.Everywhere() {
		t.Fatalf("staged as %+v", b.s.Stage)
	}
	if r := b.do(codeRefused, command{Kind: kindPutSpec, BasedOn: 1, Body: []byte("three")}); !strings.Contains(r.Message, "on trial in eu") {
		t.Fatalf("another apply is told %q", r.Message)
	}
	b.do(codeRefused, command{Kind: kindStage, BasedOn: 1, Trial: eu, Body: []byte("three")})
	b.do(codeOK, command{Kind: kindMarkStage, Ends: n, Elapsed: 40 * time.Second, Detail: "fine"})
	b.do(codeOK, command{Kind: kindMarkStage, Ends: n, Elapsed: 30 * time.Second, Detail: "late news"})
	if b.s.Stage.Elapsed != 40*time.Second {
		t.Fatalf("the window went back to %s", b.s.Stage.Elapsed)
	}
	b.do(codeRefused, command{Kind: kindEndStage, Ends: n + 1, Action: "rollback"})
	b.do(codeOK, command{Kind: kindEndStage, Ends: n, Action: "rollback", Detail: "error_rate 9%"})
	inForce(t, b.s, 1, "one")
	b.do(codeRefused, command{Kind: kindEndStage, Ends: n, Action: "rollback"})
	b.do(codeRefused, command{Kind: kindMarkStage, Ends: n, Elapsed: time.Second})
	b.do(codeRefused, command{Kind: kindPutSpec, BasedOn: 1, Ends: n, Body: []byte("two"), Action: "promote"})
	if last := b.s.Audit[len(b.s.Audit)-1]; last.Action != "rollback" || last.Detail != "error_rate 9%" {
		t.Fatalf("audited as %+v", last)
	}

	n = b.do(codeOK, command{Kind: kindStage, BasedOn: 1, Trial: eu, Body: []byte("four")}).Value
	b.do(codeRefused, command{Kind: kindPutSpec, BasedOn: 1, Ends: n, Body: []byte("five"), Action: "promote"})
	b.do(codeOK, command{Kind: kindPutSpec, BasedOn: 1, Ends: n, Body: []byte("four"), Action: "promote"})
	inForce(t, b.s, 2, "four")

	b.do(codeOK, command{Kind: kindStage, BasedOn: 2, Trial: eu, Body: []byte("six")})
	b.do(codeOK, command{Kind: kindPutSpec, BasedOn: 2, Body: []byte("seven"), Replace: true})
	inForce(t, b.s, 3, "seven")
	if b.s.Stage != nil {
		t.Fatalf("the stage outlived what replaced it: %+v", b.s.Stage)
	}
	if err := Verify(b.s.Audit); err != nil {
		t.Fatal(err)
	}
}

// TestTrialEverywhere: versions only go forward, back to the old spec too.
func TestTrialEverywhere(t *testing.T) {
	all := &Trial{Guard: "error_rate<2%", Window: time.Minute}
	b := &book{t, &State{}}
	b.do(codeRefused, command{Kind: kindPutSpec, Trial: all, Body: []byte("one")}) // nothing to go back to
	b.do(codeOK, command{Kind: kindPutSpec, Body: []byte("one")})
	b.do(codeOK, command{Kind: kindPutSpec, BasedOn: 1, Trial: all, Body: []byte("two")})
	inForce(t, b.s, 2, "two")
	g := b.s.Stage
	if !g.Everywhere() || string(g.Body) != "one" {
		t.Fatalf("on trial as %+v", g)
	}
	b.do(codeOK, command{Kind: kindPutSpec, BasedOn: 2, Ends: g.Number, Body: g.Body, Action: "rollback"})
	inForce(t, b.s, 3, "one")

	b.do(codeOK, command{Kind: kindPutSpec, BasedOn: 3, Trial: all, Body: []byte("four")})
	b.do(codeOK, command{Kind: kindEndStage, Ends: b.s.Stage.Number, Action: "promote"})
	inForce(t, b.s, 4, "four")
	if b.s.Stage != nil {
		t.Fatal("it is still on trial")
	}
}

// TestStageSurvivesItsSnapshot, and a damaged one is refused.
func TestStageSurvivesItsSnapshot(t *testing.T) {
	b := &book{t, &State{}}
	b.do(codeOK, command{Kind: kindPutSpec, Body: []byte("one")})
	b.do(codeOK, command{Kind: kindStage, BasedOn: 1, Trial: &Trial{Regions: []string{"ap", "eu"}, Guard: "g", Window: time.Hour}, Body: []byte("two")})
	b.do(codeOK, command{Kind: kindMarkStage, Ends: 2, Elapsed: time.Minute, Detail: "figures"})
	raw, err := encodeState(b.s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeState(bytes.NewReader(raw))
	if err != nil || got.Hash() != b.s.Hash() || got.Stage.Elapsed != time.Minute || !got.Stage.In("ap") || got.Stage.Figures != "figures" {
		t.Fatalf("restored as %+v, %v", got.Stage, err)
	}
	for _, g := range []Stage{{}, {Number: 2}, {Number: 2, Body: []byte("x"), Trial: Trial{Regions: []string{"b", "a"}}}} {
		w := wireState{Index: 3, SpecVersion: 1, Specs: b.s.SpecHistory, Stage: &g}
		if _, err := w.state(); err == nil {
			t.Errorf("a snapshot with the stage %+v is taken", g)
		}
	}
}

// TestStagesOfThisRelease replays a log with stages as this release wrote it.
func TestStagesOfThisRelease(t *testing.T) {
	path := filepath.Join("testdata", goldenStages)
	if *update {
		eu := &Trial{Regions: []string{"eu"}, Guard: "error_rate<2%", Window: time.Minute}
		writeLog(t, path, [][]byte{
			must(t, command{Kind: kindPutSpec, ID: "1", Body: []byte("one"), Actor: "alice", At: noon}),
			must(t, command{Kind: kindStage, ID: "2", BasedOn: 1, Trial: eu, Body: []byte("two"), Actor: "alice", Reason: "try", At: noon}),
			must(t, command{Kind: kindMarkStage, Ends: 2, Elapsed: time.Second, Detail: "figures", At: noon}),
			must(t, command{Kind: kindEndStage, ID: "3", Ends: 2, Action: "rollback", Actor: "g1", Detail: "figures", At: noon}),
			must(t, command{Kind: kindStage, ID: "4", BasedOn: 1, Trial: eu, Body: []byte("two"), Actor: "alice", At: noon}),
			must(t, command{Kind: kindPutSpec, ID: "5", BasedOn: 1, Ends: 5, Body: []byte("two"), Action: "promote", Actor: "g1", At: noon}),
			must(t, command{Kind: kindPutSpec, ID: "6", BasedOn: 2, Trial: &Trial{Guard: "g", Window: 1}, Body: []byte("three"), Actor: "bob", At: noon}),
		})
	}
	s := replay(t, path)
	if s.SpecVersion != 3 || s.Stage == nil || !s.Stage.Everywhere() || len(s.Audit) != 6 {
		t.Fatalf("the log leads to %+v", s)
	}
}

// TestOlderNodesStillTakeWhatIsPromoted: to a node that knows nothing of stages, a promotion is a spec like any other.
func TestOlderNodesStillTakeWhatIsPromoted(t *testing.T) {
	promote := command{Kind: kindPutSpec, ID: "p", BasedOn: 1, Ends: 2, Body: []byte("two"), Action: "promote", At: noon}
	older := promote
	older.Ends, older.Action = 0, "" // the fields that it does not read
	b := &book{t, &State{}}
	b.do(codeOK, command{Kind: kindPutSpec, Body: []byte("one")})
	b.do(codeOK, older)
	inForce(t, b.s, 2, "two")
}
