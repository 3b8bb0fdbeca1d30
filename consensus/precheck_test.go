package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
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

// TestStateSizeIsAnUpperBound: the snapshot of any state is at most as long as stateSize returns, so that an accepted
// state can be read back.
func TestStateSizeIsAnUpperBound(t *testing.T) {
	text := rapid.StringMatching(`[a-z<>&"\\\n\x00\x{2028}\x{1f600}]{0,40}`)
	rapid.Check(t, func(t *rapid.T) {
		s := &State{SpecVersion: 1, PlanEpoch: 1, Plan: rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "plan")}
		s.SpecHistory = []SpecEntry{{Version: 1, Body: rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "spec"), Actor: text.Draw(t, "actor")}}
		for i := range rapid.IntRange(0, 20).Draw(t, "drains") {
			s.Drains = append(s.Drains, Drain{Path: fmt.Sprint(i), Reason: strings.Repeat(text.Draw(t, "reason"), 20), Actor: "a"})
		}
		for range rapid.IntRange(0, 20).Draw(t, "records") {
			s.Audit = append(s.Audit, AuditRecord{Detail: text.Draw(t, "detail"), Prev: strings.Repeat("f", 64), Hash: strings.Repeat("f", 64)})
		}
		s.PlanOrigin.Detail = text.Draw(t, "origin")
		b, err := encodeState(s)
		if err != nil {
			t.Fatal(err)
		}
		if n := stateSize(s) - stateSlack; len(b) > n+4096 { // most of the slack is for the zone's signing state
			t.Fatalf("%d bytes, and stateSize is %d", len(b), n)
		}
	})
}

// TestStateNeverExceedsTheSnapshotLimit uses ten specs of maximum length and the most drains, with the reasons that
// need the most space.
func TestStateNeverExceedsTheSnapshotLimit(t *testing.T) {
	t.Parallel()
	s := &State{}
	put := func(c command) commandResult {
		next, r := *s, commandResult{}
		next.Index++
		if r = next.applyCommand(c, stateChecks{}); r.Code == codeOK && stateSize(&next) <= maxSnapshot {
			s = &next
			return r
		}
		return commandResult{Code: codeRefused}
	}
	for i := range 12 {
		if put(command{Kind: kindPutSpec, BasedOn: uint64(i), Body: bytes.Repeat([]byte{byte('a' + i)}, MaxBody), At: noon}).Code != codeOK {
			t.Fatalf("spec %d is refused", i)
		}
	}
	if n := len(s.SpecHistory); n < 2 || n > 6 {
		t.Errorf("the history holds %d specs of %d bytes", n, MaxBody)
	}
	put(command{Kind: kindPutPlan, Body: make([]byte, MaxBody)})
	one := Drain{Reason: strings.Repeat("\x01", maxReason), At: noon}
	each := stateSize(&State{Drains: []Drain{one}}) - stateSize(&State{}) + 200
	room := min(maxDrains, (maxSnapshot-stateSize(s))/each)
	for i := range room {
		one.Path = fmt.Sprintf("%0200d", i)
		s.Drains = append(s.Drains, one)
	}
	if n := stateSize(s); n > maxSnapshot || n < maxSnapshot-each && room < maxDrains {
		t.Fatalf("%d drains come to %d bytes", room, n)
	}
	b, err := encodeState(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeState(bytes.NewReader(b)); err != nil {
		t.Fatalf("a state of %d bytes with %d drains cannot be read back: %v", len(b), len(s.Drains), err)
	}
}

// TestReasonsAreEscapedForHTML: the state is encoded as by earlier releases, with which nodes compare its hash, and
// its size is counted with the escapes.
func TestReasonsAreEscapedForHTML(t *testing.T) {
	state := &State{Drains: []Drain{{Path: "eu", Reason: "<<<&>>>"}}}
	b, err := encodeState(state)
	if err != nil || !bytes.Contains(b, []byte(`\u003c\u003c\u003c\u0026\u003e\u003e\u003e`)) {
		t.Errorf("%q, %v", b, err)
	}
	if n := stateSize(state); n < len(b) {
		t.Errorf("%d bytes are counted as %d", len(b), n)
	}
	s, err := decodeState(bytes.NewReader(b))
	if err != nil || s.Drains[0].Reason != "<<<&>>>" {
		t.Errorf("read back: %+v, %v", s, err)
	}
}

// TestLeaderAndFollowersShareTheCommandLimit: for commands close to the length limit, each one that the leader
// accepts is decoded by every node exactly as by the leader.
func TestLeaderAndFollowersShareTheCommandLimit(t *testing.T) {
	t.Parallel()
	s := newSoloNode(t)
	n, err := s.startNode(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.stopNode(n)
	base, err := encodeCommand(command{Kind: kindPutSpec, Body: []byte("spec"), At: noon})
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for length := maxCommand - 20; length <= maxCommand+1; length++ {
		padded := append(bytes.Clone(base[:len(base)-1]), bytes.Repeat([]byte{' '}, length-len(base))...)
		marked, r, ok := n.commands.precheckCommand(append(padded, '}'))
		if !ok {
			continue
		}
		taken++
		if len(marked) > maxCommand {
			t.Fatalf("a command of %d bytes goes into the log with %d, which earlier releases refuse", length, len(marked))
		}
		if _, err := decodeCommand(marked); err != nil {
			t.Fatalf("the leader accepts %d bytes (%+v) and others do not: %v", length, r, err)
		}
	}
	if taken == 0 {
		t.Error("nothing is taken")
	}
}

// TestLargestArchiveIsRestored restores ten specs of 10,000 objects, of 1.8 MB each.
func TestLargestArchiveIsRestored(t *testing.T) {
	t.Parallel()
	s := newSoloNode(t)
	n, err := s.startNode(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.stopNode(n)
	for v := range uint64(maxSpecHistory) {
		if _, err := n.PutSpec(t.Context(), v, bytes.Repeat([]byte{byte('0' + v)}, 1_800_000), "a"); err != nil {
			t.Fatal(err)
		}
	}
	archive, err := n.EncodeArchive()
	if err != nil {
		t.Fatal(err)
	}
	version, err := n.RestoreArchive(t.Context(), archive, Attribution{Actor: "op"})
	if err != nil || version != maxSpecHistory+1 || n.State().Spec[0] != '9' {
		t.Fatalf("restoring %d bytes: version %d, %v", len(archive), version, err)
	}
}
