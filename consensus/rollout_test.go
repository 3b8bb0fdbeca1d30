package consensus

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const goldenRollouts = "log-stages.txt"

// drawRollout draws the rollout fields of a command, which often fit the state.
func drawRollout(t *rapid.T, s *State, c *command) {
	switch c.Kind {
	case kindStartRollout:
		c.Rollout = &RolloutConfig{Regions: []string{"eu"}, Window: time.Minute}
		c.ReplaceRollout = rapid.Bool().Draw(t, "replace")
	case kindPutSpec:
		c.ReplaceRollout = rapid.Bool().Draw(t, "replace")
		switch rapid.IntRange(0, 2).Draw(t, "way") {
		case 1:
			c.Rollout = &RolloutConfig{Conditions: "g", Window: time.Minute}
		case 2:
			c.EndsRollout, c.Action = 1, "promote"
			if s.Rollout != nil {
				c.EndsRollout, c.Body = s.Rollout.Number, s.Rollout.Body
			}
		}
	case kindEndRollout, kindRolloutProgress:
		c.EndsRollout, c.Action = 1, "rollback"
		c.Elapsed = time.Duration(rapid.IntRange(0, 90).Draw(t, "elapsed")) * time.Second
		if s.Rollout != nil {
			c.EndsRollout = s.Rollout.Number
		}
	}
}

// stateRunner applies commands in turn and fails the test on an unexpected answer.
type stateRunner struct {
	t     *testing.T
	state *State
}

func (b *stateRunner) mustApply(want resultCode, c command) commandResult {
	b.t.Helper()
	c.At, c.Actor = noon, "alice"
	next, r := applyEntry(b.state, logEntry{index: b.state.Index + 1, term: 1, data: mustEncode(b.t, c)}, stateChecks{})
	if r.Code != want {
		b.t.Fatalf("%+v is answered %+v, want %s", c, r, want)
	}
	b.state = next
	return r
}

func checkSpecInForce(t *testing.T, s *State, version uint64, body string) {
	t.Helper()
	if s.SpecVersion != version || string(s.Spec) != body {
		t.Fatalf("spec %d, %q, is in force; want %d, %q", s.SpecVersion, s.Spec, version, body)
	}
}

// TestRolloutInOneRegion covers each way in which a stage in some regions can end.
func TestRolloutInOneRegion(t *testing.T) {
	eu := &RolloutConfig{Regions: []string{"eu"}, Conditions: "error_rate<2%", Window: time.Minute}
	b := &stateRunner{t, &State{}}
	b.mustApply(codeRefused, command{Kind: kindStartRollout, Rollout: eu, Body: []byte("two")}) // there is no spec in force
	b.mustApply(codeOK, command{Kind: kindPutSpec, Body: []byte("one")})
	b.mustApply(codeConflict, command{Kind: kindStartRollout, BasedOn: 9, Rollout: eu, Body: []byte("two")})
	b.mustApply(codeRefused, command{Kind: kindStartRollout, BasedOn: 1, Rollout: &RolloutConfig{}, Body: []byte("two")})

	n := b.mustApply(codeOK, command{Kind: kindStartRollout, BasedOn: 1, Rollout: eu, Body: []byte("two")}).Value
	checkSpecInForce(t, b.state, 1, "one")
	if g := b.state.Rollout; g.Number != n || string(g.Body) != "two" || !g.IncludesRegion("eu") || g.IncludesRegion("us") || g.IsEverywhere() {
		t.Fatalf("staged as %+v", b.state.Rollout)
	}
	if r := b.mustApply(codeRefused, command{Kind: kindPutSpec, BasedOn: 1, Body: []byte("three")}); !strings.Contains(r.Message, "staged in eu") {
		t.Fatalf("another apply is answered %q", r.Message)
	}
	b.mustApply(codeRefused, command{Kind: kindStartRollout, BasedOn: 1, Rollout: eu, Body: []byte("three")})
	b.mustApply(codeOK, command{Kind: kindRolloutProgress, EndsRollout: n, Elapsed: 40 * time.Second, Detail: "fine"})
	b.mustApply(codeOK, command{Kind: kindRolloutProgress, EndsRollout: n, Elapsed: 30 * time.Second, Detail: "late news"})
	if b.state.Rollout.Elapsed != 40*time.Second {
		t.Fatalf("the window went back to %s", b.state.Rollout.Elapsed)
	}
	b.mustApply(codeRefused, command{Kind: kindEndRollout, EndsRollout: n + 1, Action: "rollback"})
	b.mustApply(codeOK, command{Kind: kindEndRollout, EndsRollout: n, Action: "rollback", Detail: "error_rate 9%"})
	checkSpecInForce(t, b.state, 1, "one")
	b.mustApply(codeRefused, command{Kind: kindEndRollout, EndsRollout: n, Action: "rollback"})
	b.mustApply(codeRefused, command{Kind: kindRolloutProgress, EndsRollout: n, Elapsed: time.Second})
	b.mustApply(codeRefused, command{Kind: kindPutSpec, BasedOn: 1, EndsRollout: n, Body: []byte("two"), Action: "promote"})
	if last := b.state.Audit[len(b.state.Audit)-1]; last.Action != "rollback" || last.Detail != "error_rate 9%" {
		t.Fatalf("audited as %+v", last)
	}

	n = b.mustApply(codeOK, command{Kind: kindStartRollout, BasedOn: 1, Rollout: eu, Body: []byte("four")}).Value
	b.mustApply(codeRefused, command{Kind: kindPutSpec, BasedOn: 1, EndsRollout: n, Body: []byte("five"), Action: "promote"})
	b.mustApply(codeOK, command{Kind: kindPutSpec, BasedOn: 1, EndsRollout: n, Body: []byte("four"), Action: "promote"})
	checkSpecInForce(t, b.state, 2, "four")

	b.mustApply(codeOK, command{Kind: kindStartRollout, BasedOn: 2, Rollout: eu, Body: []byte("six")})
	b.mustApply(codeOK, command{Kind: kindPutSpec, BasedOn: 2, Body: []byte("seven"), ReplaceRollout: true})
	checkSpecInForce(t, b.state, 3, "seven")
	if b.state.Rollout != nil {
		t.Fatalf("the stage outlived what replaced it: %+v", b.state.Rollout)
	}
	if err := VerifyAudit(b.state.Audit); err != nil {
		t.Fatal(err)
	}
}

// TestRolloutEverywhere: versions only rise, also on a roll back to the old spec.
func TestRolloutEverywhere(t *testing.T) {
	all := &RolloutConfig{Conditions: "error_rate<2%", Window: time.Minute}
	b := &stateRunner{t, &State{}}
	b.mustApply(codeRefused, command{Kind: kindPutSpec, Rollout: all, Body: []byte("one")}) // nothing to roll back to
	b.mustApply(codeOK, command{Kind: kindPutSpec, Body: []byte("one")})
	b.mustApply(codeOK, command{Kind: kindPutSpec, BasedOn: 1, Rollout: all, Body: []byte("two")})
	checkSpecInForce(t, b.state, 2, "two")
	g := b.state.Rollout
	if !g.IsEverywhere() || string(g.Body) != "one" {
		t.Fatalf("staged as %+v", g)
	}
	b.mustApply(codeOK, command{Kind: kindPutSpec, BasedOn: 2, EndsRollout: g.Number, Body: g.Body, Action: "rollback"})
	checkSpecInForce(t, b.state, 3, "one")

	b.mustApply(codeOK, command{Kind: kindPutSpec, BasedOn: 3, Rollout: all, Body: []byte("four")})
	b.mustApply(codeOK, command{Kind: kindEndRollout, EndsRollout: b.state.Rollout.Number, Action: "promote"})
	checkSpecInForce(t, b.state, 4, "four")
	if b.state.Rollout != nil {
		t.Fatal("it is still staged")
	}
}

// TestRolloutSurvivesASnapshot checks that a stage survives a snapshot and that a damaged one is refused.
func TestRolloutSurvivesASnapshot(t *testing.T) {
	b := &stateRunner{t, &State{}}
	b.mustApply(codeOK, command{Kind: kindPutSpec, Body: []byte("one")})
	b.mustApply(codeOK, command{Kind: kindStartRollout, BasedOn: 1, Rollout: &RolloutConfig{Regions: []string{"ap", "eu"}, Conditions: "g", Window: time.Hour}, Body: []byte("two")})
	b.mustApply(codeOK, command{Kind: kindRolloutProgress, EndsRollout: 2, Elapsed: time.Minute, Detail: "figures"})
	raw, err := encodeState(b.state)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeState(bytes.NewReader(raw))
	if err != nil || got.Hash() != b.state.Hash() || got.Rollout.Elapsed != time.Minute || !got.Rollout.IncludesRegion("ap") || got.Rollout.Figures != "figures" {
		t.Fatalf("restored as %+v, %v", got.Rollout, err)
	}
	for _, g := range []Rollout{{}, {Number: 2}, {Number: 2, Body: []byte("x"), RolloutConfig: RolloutConfig{Regions: []string{"b", "a"}}}} {
		w := wireState{Index: 3, SpecVersion: 1, Specs: b.state.SpecHistory, Rollout: &g}
		if _, err := w.toState(); err == nil {
			t.Errorf("a snapshot with the stage %+v is taken", g)
		}
	}
}

// TestGoldenRolloutLog replays a log with stages that this release wrote.
func TestGoldenRolloutLog(t *testing.T) {
	path := filepath.Join("testdata", goldenRollouts)
	if *updateGolden {
		eu := &RolloutConfig{Regions: []string{"eu"}, Conditions: "error_rate<2%", Window: time.Minute}
		writeGoldenLog(t, path, [][]byte{
			mustEncode(t, command{Kind: kindPutSpec, ID: "1", Body: []byte("one"), Actor: "alice", At: noon}),
			mustEncode(t, command{Kind: kindStartRollout, ID: "2", BasedOn: 1, Rollout: eu, Body: []byte("two"), Actor: "alice", Reason: "try", At: noon}),
			mustEncode(t, command{Kind: kindRolloutProgress, EndsRollout: 2, Elapsed: time.Second, Detail: "figures", At: noon}),
			mustEncode(t, command{Kind: kindEndRollout, ID: "3", EndsRollout: 2, Action: "rollback", Actor: "g1", Detail: "figures", At: noon}),
			mustEncode(t, command{Kind: kindStartRollout, ID: "4", BasedOn: 1, Rollout: eu, Body: []byte("two"), Actor: "alice", At: noon}),
			mustEncode(t, command{Kind: kindPutSpec, ID: "5", BasedOn: 1, EndsRollout: 5, Body: []byte("two"), Action: "promote", Actor: "g1", At: noon}),
			mustEncode(t, command{Kind: kindPutSpec, ID: "6", BasedOn: 2, Rollout: &RolloutConfig{Conditions: "g", Window: 1}, Body: []byte("three"), Actor: "bob", At: noon}),
		})
	}
	s := replayGoldenLog(t, path)
	if s.SpecVersion != 3 || s.Rollout == nil || !s.Rollout.IsEverywhere() || len(s.Audit) != 6 {
		t.Fatalf("the log leads to %+v", s)
	}
}

// TestOlderNodesApplyAPromotion: for a node without support for stages, a promotion is a spec like any other.
func TestOlderNodesApplyAPromotion(t *testing.T) {
	promote := command{Kind: kindPutSpec, ID: "p", BasedOn: 1, EndsRollout: 2, Body: []byte("two"), Action: "promote", At: noon}
	older := promote
	older.EndsRollout, older.Action = 0, "" // the fields that it does not read
	b := &stateRunner{t, &State{}}
	b.mustApply(codeOK, command{Kind: kindPutSpec, Body: []byte("one")})
	b.mustApply(codeOK, older)
	checkSpecInForce(t, b.state, 2, "two")
}
