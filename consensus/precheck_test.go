package consensus

import (
	"errors"
	"testing"
)

// TestPreCheckedMarkOfAProposerIsIgnored: a proposer marks its own spec as checked, and the spec is checked
// nevertheless.
func TestPreCheckedMarkOfAProposerIsIgnored(t *testing.T) {
	no := stateChecks{spec: func(_, _ []byte) error { return errors.New("no") }}
	claimed := mustEncode(t, command{Kind: kindPutSpec, Body: []byte("x"), At: noon, PreChecked: true})
	if _, r := applyEntry(&State{}, logEntry{index: 1, term: 1, data: claimed}, no); r.Code != codeOK {
		t.Fatalf("in the log a mark counts: %+v", r)
	}
	s := newSoloNode(t)
	n, err := s.startNode(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.stopNode(n)
	n.fsm.checks = no
	if _, r, ok := n.commands.precheckCommand(claimed); ok || r.Code != codeRefused {
		t.Fatalf("a proposer's mark counts: %+v", r)
	}
	plain := mustEncode(t, command{Kind: kindPutSpec, Body: []byte("x"), At: noon})
	later := append(plain[:len(plain)-1:len(plain)-1], `,"rollout":{"percent":5}}`...)
	n.fsm.checks = stateChecks{}
	data, r, ok := n.commands.precheckCommand(later)
	if c, err := decodeCommand(data); !ok || err != nil || !c.PreChecked || string(data[:len(later)-1]) != string(later[:len(later)-1]) {
		t.Fatalf("marked %q: %+v, %v", data, r, err)
	}
	away := mustEncode(t, command{Kind: kindPutSpec, BasedOn: 99, Body: []byte("x"), At: noon, PreChecked: true})
	if data, r, ok = n.commands.precheckCommand(away); !ok || r.Code != codeConflict {
		t.Fatalf("a conflict is the log's to decide: %+v", r)
	}
	if c, err := decodeCommand(data); err != nil || c.PreChecked {
		t.Fatalf("an unchecked command has the mark: %q (%v)", data, err)
	}
}

// TestRepeatedRolloutCommandGetsTheFirstAnswer sends a stage and its promotion a second time, as after a lost answer.
// Each repeat gets the answer of the first time, and no conflict with itself.
func TestRepeatedRolloutCommandGetsTheFirstAnswer(t *testing.T) {
	s := newSoloNode(t)
	n, err := s.startNode(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.stopNode(n)
	if _, err := n.PutSpec(t.Context(), 0, []byte("one"), "alice"); err != nil {
		t.Fatal(err)
	}
	begin := newCommand(kindStartRollout)
	begin.BasedOn, begin.Body, begin.Rollout = 1, []byte("two"), &RolloutConfig{Regions: []string{"eu"}}
	first := proposeTwice(t, n, begin)
	end := newCommand(kindPutSpec)
	end.BasedOn, end.Body, end.EndsRollout, end.Action = 1, []byte("two"), first.Value, "promote"
	proposeTwice(t, n, end)
	if st := n.State(); st.SpecVersion != 2 || st.Rollout != nil {
		t.Fatalf("spec %d is in force, and staged is %+v", st.SpecVersion, st.Rollout)
	}
	other := newCommand(kindPutSpec)
	other.BasedOn, other.Body, other.EndsRollout = 2, []byte("two"), first.Value
	if _, err := n.proposer.proposeCommand(t.Context(), other); !errors.As(err, new(ErrRefused)) {
		t.Fatalf("another's promotion of a stage that is over: %v", err)
	}
}

// proposeTwice proposes a command twice.
func proposeTwice(t *testing.T, n *Node, c command) commandResult {
	t.Helper()
	first, err := n.proposer.proposeCommand(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	second, err := n.proposer.proposeCommand(t.Context(), c)
	if err != nil || second != first {
		t.Fatalf("answered %+v at first, and then %+v (%v)", first, second, err)
	}
	return first
}
