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
