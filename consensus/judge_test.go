package consensus

import (
	"errors"
	"testing"
)

// TestOnlyTheLeadersWordCounts has a proposer claim that its spec was judged.
func TestOnlyTheLeadersWordCounts(t *testing.T) {
	no := checks{spec: func(_, _ []byte) error { return errors.New("no") }}
	claimed := must(t, command{Kind: kindPutSpec, Body: []byte("x"), At: noon, Judged: true})
	if _, r := apply(&State{}, entry{index: 1, term: 1, data: claimed}, no); r.Code != codeOK {
		t.Fatalf("in the log a mark counts: %+v", r)
	}
	s := newSolo(t)
	n, err := s.start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop(n)
	n.fsm.checks = no
	if _, r, ok := n.foresee(claimed); ok || r.Code != codeRefused {
		t.Fatalf("a proposer's mark counts: %+v", r)
	}
	plain := must(t, command{Kind: kindPutSpec, Body: []byte("x"), At: noon})
	later := append(plain[:len(plain)-1:len(plain)-1], `,"rollout":{"percent":5}}`...)
	n.fsm.checks = checks{}
	data, r, ok := n.foresee(later)
	if c, err := decodeCommand(data); !ok || err != nil || !c.Judged || string(data[:len(later)-1]) != string(later[:len(later)-1]) {
		t.Fatalf("marked %q: %+v, %v", data, r, err)
	}
	away := must(t, command{Kind: kindPutSpec, BasedOn: 99, Body: []byte("x"), At: noon, Judged: true})
	if data, r, ok = n.foresee(away); !ok || r.Code != codeConflict {
		t.Fatalf("a conflict is the log's to decide: %+v", r)
	}
	if c, err := decodeCommand(data); err != nil || c.Judged {
		t.Fatalf("what was not judged is marked so: %q (%v)", data, err)
	}
}

// TestAnAnswerThatWasLost has a stage and its promotion sent a second time, as if the first answer had not come: each is
// answered as the first time, and not told that it is in its own way.
func TestAnAnswerThatWasLost(t *testing.T) {
	s := newSolo(t)
	n, err := s.start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop(n)
	if _, err := n.PutSpec(t.Context(), 0, []byte("one"), "alice"); err != nil {
		t.Fatal(err)
	}
	begin := n.write(kindStage)
	begin.BasedOn, begin.Body, begin.Trial = 1, []byte("two"), &Trial{Regions: []string{"eu"}}
	first := twice(t, n, begin)
	end := n.write(kindPutSpec)
	end.BasedOn, end.Body, end.Ends, end.Action = 1, []byte("two"), first.Value, "promote"
	twice(t, n, end)
	if st := n.State(); st.SpecVersion != 2 || st.Stage != nil {
		t.Fatalf("spec %d is in force, and on trial is %+v", st.SpecVersion, st.Stage)
	}
	other := n.write(kindPutSpec)
	other.BasedOn, other.Body, other.Ends = 2, []byte("two"), first.Value
	if _, err := n.propose(t.Context(), other); !errors.As(err, new(ErrRefused)) {
		t.Fatalf("another's promotion of a stage that is over: %v", err)
	}
}

// twice proposes a command two times.
func twice(t *testing.T, n *Node, c command) result {
	t.Helper()
	first, err := n.propose(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	second, err := n.propose(t.Context(), c)
	if err != nil || second != first {
		t.Fatalf("answered %+v at first, and then %+v (%v)", first, second, err)
	}
	return first
}
