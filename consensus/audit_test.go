package consensus

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestAuditChains makes changes of every kind, cuts the records as the state does, and alters one: only the untouched
// chain verifies.
func TestAuditChains(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &State{}
		for i := range rapid.IntRange(1, maxAudit+20).Draw(t, "changes") {
			c := command{Kind: kindNote, Action: "member add", Path: "g4", Actor: "op", Reason: "why", At: noon}
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 1:
				c = command{Kind: kindPutSpec, BasedOn: s.SpecVersion, Body: []byte("x"), Actor: "op", Detail: "a: 1 -> 2", At: noon}
			case 2:
				c = command{Kind: kindPutDrain, Path: "eu", Actor: "op", At: noon}
			}
			data, err := encodeCommand(c)
			if err != nil {
				t.Fatal(err)
			}
			s, _ = apply(s, entry{index: uint64(i + 1), term: 1, data: data}, checks{})
		}
		last := s.Audit[len(s.Audit)-1]
		if err := Verify(s.Audit); err != nil || len(s.Audit) > maxAudit || last.Index != s.Index {
			t.Fatalf("%d records, the last of entry %d: %v", len(s.Audit), last.Index, err)
		}
		bad := append([]Record{}, s.Audit...)
		at := rapid.IntRange(0, len(bad)-1).Draw(t, "altered")
		bad[at].Actor += "x"
		if err := Verify(bad); err == nil || !strings.Contains(err.Error(), "altered") {
			t.Fatalf("an altered record verifies: %v", err)
		}
		if bad[at].Hash = bad[at].sum(); at < len(bad)-1 && Verify(bad) == nil {
			t.Fatal("a replaced record verifies")
		}
		if at > 0 && at < len(bad)-1 && Verify(append(append([]Record{}, s.Audit[:at]...), s.Audit[at+1:]...)) == nil {
			t.Fatal("a chain with a record left out verifies")
		}
	})
}

func TestPlansAndRefusalsAreNotAudited(t *testing.T) {
	s := &State{}
	for i, c := range []command{
		{Kind: kindPutPlan, Term: 1, Body: []byte("plan"), At: noon},
		{Kind: kindPutSpec, BasedOn: 7, Body: []byte("late"), At: noon},
		{Kind: kindDeleteDrain, Path: "none", At: noon},
		{Kind: kindExpire, At: noon},
	} {
		s, _ = apply(s, entry{index: uint64(i + 1), term: 1, data: must(t, c)}, checks{})
	}
	if len(s.Audit) != 0 {
		t.Fatalf("audited: %+v", s.Audit)
	}
}

// Keys that the leader rotates are not audited; those that an operator rotates or purges are.
func TestTicketKeysOfOperatorsAreAudited(t *testing.T) {
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, keySize) }
	s := &State{}
	for i, c := range []command{
		{Kind: kindRotateKey, Body: key(1), At: noon},
		{Kind: kindRotateKey, Body: key(2), At: noon, Actor: "ann", Reason: "drill"},
		{Kind: kindPurgeKeys, Body: key(3), At: noon, Actor: "ann", Reason: "stolen"},
		{Kind: kindPurgeKeys, Body: []byte("short"), At: noon, Actor: "ann"},
	} {
		before := len(s.TicketKeys)
		s, _ = apply(s, entry{index: uint64(i + 1), term: 1, data: must(t, c)}, checks{})
		if want := []int{1, 2, 1, 1}[i]; len(s.TicketKeys) != want {
			t.Errorf("%d: %d keys after %d, want %d", i, len(s.TicketKeys), before, want)
		}
	}
	if !bytes.Equal(s.TicketKeys[0].Secret, key(3)) {
		t.Error("the purge left another key")
	}
	if len(s.Audit) != 2 || s.Audit[0].Action != "tickets rotate" || s.Audit[1].Action != "tickets purge" || s.Audit[1].Reason != "stolen" {
		t.Errorf("audited: %+v", s.Audit)
	}
}
