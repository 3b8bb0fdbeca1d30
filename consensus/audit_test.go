package consensus

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestAuditHashChainDetectsAlteration makes changes of every kind, cuts the records as the state does, and alters
// one: only the unaltered chain verifies.
func TestAuditHashChainDetectsAlteration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &State{}
		for i := range rapid.IntRange(1, maxAuditRecords+20).Draw(t, "changes") {
			c := command{Kind: kindAuditNote, Action: "member add", Path: "g4", Actor: "op", Reason: "why", At: noon}
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
			s, _ = applyEntry(s, logEntry{index: uint64(i + 1), term: 1, data: data}, stateChecks{})
		}
		last := s.Audit[len(s.Audit)-1]
		if err := VerifyAudit(s.Audit); err != nil || len(s.Audit) > maxAuditRecords || last.Index != s.Index {
			t.Fatalf("%d records, the last of entry %d: %v", len(s.Audit), last.Index, err)
		}
		bad := append([]AuditRecord{}, s.Audit...)
		at := rapid.IntRange(0, len(bad)-1).Draw(t, "altered")
		bad[at].Actor += "x"
		if err := VerifyAudit(bad); err == nil || !strings.Contains(err.Error(), "altered") {
			t.Fatalf("an altered record verifies: %v", err)
		}
		if bad[at].Hash = bad[at].computeHash(); at < len(bad)-1 && VerifyAudit(bad) == nil {
			t.Fatal("a replaced record verifies")
		}
		if at > 0 && at < len(bad)-1 && VerifyAudit(append(append([]AuditRecord{}, s.Audit[:at]...), s.Audit[at+1:]...)) == nil {
			t.Fatal("a chain without one record verifies")
		}
	})
}

func TestPlansAndRefusalsAreNotAudited(t *testing.T) {
	s := &State{}
	for i, c := range []command{
		{Kind: kindPutPlan, Term: 1, Body: []byte("plan"), At: noon},
		{Kind: kindPutSpec, BasedOn: 7, Body: []byte("late"), At: noon},
		{Kind: kindDeleteDrain, Path: "none", At: noon},
		{Kind: kindExpireDrains, At: noon},
	} {
		s, _ = applyEntry(s, logEntry{index: uint64(i + 1), term: 1, data: mustEncode(t, c)}, stateChecks{})
	}
	if len(s.Audit) != 0 {
		t.Fatalf("audited: %+v", s.Audit)
	}
}

// Key rotations by the leader are not audited; those of an operator, and purges, are.
func TestTicketKeysOfOperatorsAreAudited(t *testing.T) {
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, ticketKeySize) }
	s := &State{}
	for i, c := range []command{
		{Kind: kindRotateKey, Body: key(1), At: noon},
		{Kind: kindRotateKey, Body: key(2), At: noon, Actor: "ann", Reason: "drill"},
		{Kind: kindPurgeKeys, Body: key(3), At: noon, Actor: "ann", Reason: "stolen"},
		{Kind: kindPurgeKeys, Body: []byte("short"), At: noon, Actor: "ann"},
	} {
		before := len(s.TicketKeys)
		s, _ = applyEntry(s, logEntry{index: uint64(i + 1), term: 1, data: mustEncode(t, c)}, stateChecks{})
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
