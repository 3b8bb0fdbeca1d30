package consensus

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// TestDrainCheckedAgainstAnOldListConflicts: of two drains that were checked against the same list only the first is put in force. The
// same command sent again is no conflict, and a command of an earlier release is not checked.
func TestDrainCheckedAgainstAnOldListConflicts(t *testing.T) {
	s := &State{}
	do := func(c command) commandResult {
		data, err := encodeCommand(c)
		if err != nil {
			t.Fatal(err)
		}
		var r commandResult
		s, r = applyEntry(s, logEntry{index: s.Index + 1, term: 1, data: data}, stateChecks{})
		return r
	}
	none := drainsVersion(nil)
	first := command{Kind: kindPutDrain, ID: "a", Path: "eu", At: noon, Over: time.Minute, DrainsVersion: none}
	if r := do(first); r.Code != codeOK {
		t.Fatalf("%+v", r)
	}
	if r := do(command{Kind: kindPutDrain, ID: "b", Path: "us", At: noon, DrainsVersion: none}); !errors.As(r.toError(), new(ErrConflict)) || len(s.Drains) != 1 {
		t.Fatalf("%+v, drains %+v", r, s.Drains)
	}
	if r := do(first); r.Code != codeOK {
		t.Errorf("sent again: %+v", r)
	}
	if r := do(command{Kind: kindPutDrain, ID: "c", Path: "us", At: noon, DrainsVersion: drainsVersion(s.Drains)}); r.Code != codeOK {
		t.Errorf("checked again: %+v", r)
	}
	if r := do(command{Kind: kindPutDrain, ID: "d", Path: "ap", At: noon}); r.Code != codeOK || len(s.Drains) != 3 {
		t.Errorf("unchecked: %+v", r)
	}
	if d := s.Drains[1]; d.Path != "eu" || d.Over != time.Minute {
		t.Errorf("the gradual drain is kept as %+v", d)
	}
	text, err := encodeState(s)
	if err != nil {
		t.Fatal(err)
	}
	back, err := decodeState(bytes.NewReader(text))
	if err != nil || back.Drains[1].Over != time.Minute || drainsVersion(back.Drains) != drainsVersion(s.Drains) {
		t.Errorf("after a restart: %+v, %v", back, err)
	}
}
