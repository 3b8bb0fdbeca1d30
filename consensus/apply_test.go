package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// drawCommand draws commands that often fit the state and sometimes do not.
func drawCommand(t *rapid.T, s *State) command {
	c := command{
		Kind:  rapid.SampledFrom([]commandKind{1, 2, 3, 4, 5, 6, kindStartRollout, kindEndRollout, kindRolloutProgress}).Draw(t, "kind"),
		ID:    rapid.SampledFrom([]string{"", "a", "b", "c", "d"}).Draw(t, "id"),
		Path:  rapid.SampledFrom([]string{"", "ap", "eu", "eu/a", "us"}).Draw(t, "path"),
		Actor: "somebody",
		At:    noon.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "at")) * time.Minute),
	}
	if rapid.Bool().Draw(t, "ends") {
		c.Until = c.At.Add(time.Duration(rapid.IntRange(1, 100).Draw(t, "for")) * time.Minute)
	}
	off := rapid.SampledFrom([]uint64{0, 0, 0, 1}).Draw(t, "off")
	switch c.Kind {
	case kindPutSpec:
		c.BasedOn = s.SpecVersion + off
	case kindStartRollout:
		c.BasedOn = s.SpecVersion + off
	case kindPutPlan:
		c.BasedOn, c.Term, c.ID = s.PlanEpoch+off, rapid.Uint64Range(1, 2).Draw(t, "term"), ""
	}
	c.Body = fmt.Appendf(nil, "body %d", rapid.IntRange(0, 9).Draw(t, "body"))
	drawRollout(t, s, &c)
	if c.Kind == kindRotateKey && off == 0 {
		c.Body = bytes.Repeat(c.Body[:1], ticketKeySize)
	}
	return c
}

// TestApplyKeepsInvariants applies random logs and checks the invariants that readers of State rely on.
func TestApplyKeepsInvariants(t *testing.T) {
	refuseNine := func(_, next []byte) error {
		if bytes.HasSuffix(next, []byte("9")) {
			return errors.New("no nines")
		}
		return nil
	}
	k := stateChecks{spec: refuseNine, plan: refuseNine}
	rapid.Check(t, func(t *rapid.T) {
		s := &State{}
		for i := range rapid.IntRange(1, 60).Draw(t, "entries") {
			c := drawCommand(t, s)
			data, err := encodeCommand(c)
			if err != nil {
				t.Fatal(err)
			}
			e := logEntry{index: uint64(i + 1), term: 1, data: data}
			before := s.Hash()
			next, r := applyEntry(s, e, k)
			again, r2 := applyEntry(s, e, k)
			if s.Hash() != before {
				t.Fatal("apply wrote into the state it was given")
			}
			if next.Hash() != again.Hash() || r != r2 {
				t.Fatal("apply is not a function of its arguments")
			}
			checkInvariants(t, s, next, r, e.index)
			if c.Kind == kindPutPlan && r.Code == codeOK && (c.BasedOn != s.PlanEpoch || c.Term != e.term) {
				t.Fatalf("a plan based on epoch %d and of term %d was accepted at epoch %d in term %d", c.BasedOn, c.Term, s.PlanEpoch, e.term)
			}
			s = next
		}
		checkRoundTrip(t, s)
	})
}

func checkInvariants(t *rapid.T, prev, next *State, r commandResult, index uint64) {
	if next.Index != index || next.SpecVersion < prev.SpecVersion || next.PlanEpoch < prev.PlanEpoch {
		t.Fatalf("a counter went back: %+v", next)
	}
	if r.Code != codeOK {
		stay := *prev
		stay.Index, stay.Term = next.Index, next.Term
		if stay.Hash() != next.Hash() {
			t.Fatalf("an entry that was answered %q changed the state", r.Code)
		}
	}
	for i := 1; i < len(next.Drains); i++ {
		if next.Drains[i-1].Path >= next.Drains[i].Path {
			t.Fatal("drains are not in order")
		}
	}
	if len(next.TicketKeys) > maxTicketKeys || len(next.SpecHistory) > maxSpecHistory || len(next.outcomes) > maxOutcomes {
		t.Fatal("a bound does not hold")
	}
	if next.PlanEpoch > 0 && len(next.Plan) == 0 || next.SpecVersion > 0 && !bytes.Equal(next.Spec, next.SpecHistory[0].Body) {
		t.Fatal("what is in use is gone")
	}
	if strings.HasSuffix(string(next.Plan), "9") || strings.HasSuffix(string(next.Spec), "9") {
		t.Fatal("the check was skipped")
	}
}

func checkRoundTrip(t *rapid.T, s *State) {
	b, err := encodeState(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeState(bytes.NewReader(b))
	if err != nil || got.Hash() != s.Hash() || !bytes.Equal(got.Spec, s.Spec) {
		t.Fatalf("a snapshot restores to another state: %v", err)
	}
}

// TestRepeatedWriteTakesPlaceOnce checks that a write with an idempotency key is applied once when its proposer sends
// it again after a lost answer.
func TestRepeatedWriteTakesPlaceOnce(t *testing.T) {
	data, err := encodeCommand(command{Kind: kindPutSpec, ID: "x", Body: []byte("one"), At: noon})
	if err != nil {
		t.Fatal(err)
	}
	s, first := applyEntry(&State{}, logEntry{index: 1, term: 1, data: data}, stateChecks{})
	s, second := applyEntry(s, logEntry{index: 2, term: 1, data: data}, stateChecks{})
	if first != second || s.SpecVersion != 1 || s.Index != 2 {
		t.Fatalf("answers %+v and %+v, version %d", first, second, s.SpecVersion)
	}
	for i := range maxOutcomes {
		data, err := encodeCommand(command{Kind: kindPutDrain, ID: fmt.Sprint(i), Path: "eu", At: noon})
		if err != nil {
			t.Fatal(err)
		}
		s, _ = applyEntry(s, logEntry{index: uint64(3 + i), term: 1, data: data}, stateChecks{})
	}
	if len(s.outcomes) != maxOutcomes || slices.ContainsFunc(s.outcomes, func(o writeOutcome) bool { return o.ID == "x" }) {
		t.Fatalf("%d outcomes are kept, want the newest %d", len(s.outcomes), maxOutcomes)
	}
}

func TestBadEntriesChangeNothing(t *testing.T) {
	base, _ := applyEntry(&State{}, logEntry{index: 1, term: 1, data: mustEncode(t, command{Kind: kindPutSpec, Body: []byte("one"), At: noon})}, stateChecks{})
	panics := stateChecks{spec: func(_, _ []byte) error { panic("broken check") }}
	for name, c := range map[string]struct {
		data []byte
		want resultCode
	}{
		"empty":            {nil, codeRefused},
		"unknown":          {[]byte{0x7f, '{', '}'}, codeRefused},
		"unknown optional": {[]byte{0xff, 1, 2}, codeOK},
		"zero":             {[]byte{0}, codeRefused},
		"not JSON":         {[]byte{1, '{'}, codeRefused},
		"trailing":         {append(mustEncode(t, command{Kind: kindExpireDrains, At: noon}), '}'), codeRefused},
		"check panics":     {mustEncode(t, command{Kind: kindPutSpec, BasedOn: 1, Body: []byte("two"), At: noon}), codeRefused},
		"empty spec":       {mustEncode(t, command{Kind: kindPutSpec, BasedOn: 1, Body: []byte(" \n"), At: noon}), codeRefused},
		"old spec":         {mustEncode(t, command{Kind: kindPutSpec, BasedOn: 0, Body: []byte("two"), At: noon}), codeConflict},
		"old term's plan":  {mustEncode(t, command{Kind: kindPutPlan, Term: 1, Body: []byte("p"), At: noon}), codeRefused},
		"short key":        {mustEncode(t, command{Kind: kindRotateKey, Body: []byte("short"), At: noon}), codeRefused},
		"drain of nothing": {mustEncode(t, command{Kind: kindPutDrain, At: noon}), codeRefused},
		"year 10000":       {[]byte("\x03" + `{"path":"eu","until":"9999-12-31T23:59:59-23:00"}`), codeRefused},
	} {
		t.Run(name, func(t *testing.T) {
			next, r := applyEntry(base, logEntry{index: 2, term: 2, data: c.data}, panics)
			if r.Code != c.want {
				t.Fatalf("answer %+v, want %s", r, c.want)
			}
			stay := *base
			stay.Index, stay.Term = 2, 2
			if next.Hash() != stay.Hash() {
				t.Fatal("the state changed")
			}
		})
	}
}

func TestOversizedCommandIsNotProposed(t *testing.T) {
	for name, c := range map[string]command{
		"body":  {Kind: kindPutSpec, Body: make([]byte, MaxBody+1)},
		"path":  {Kind: kindPutDrain, Path: strings.Repeat("p", maxName+1)},
		"until": {Kind: kindPutDrain, Path: "eu", Until: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		c.At = noon
		if _, err := encodeCommand(c); !errors.As(err, new(ErrRefused)) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
	if b, err := encodeCommand(command{Kind: kindPutSpec, Body: make([]byte, MaxBody), At: noon}); err != nil || len(b) > maxCommand {
		t.Errorf("the largest body gives a command of %d bytes, %v; want at most %d", len(b), err, maxCommand)
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	k := TicketKey{Secret: []byte("TOPSECRET"), At: noon}
	for _, text := range []string{fmt.Sprint(k), fmt.Sprintf("%+v %#v", k, k), k.LogValue().String()} {
		if strings.Contains(text, "TOPSECRET") || strings.Contains(text, "84 79 80") {
			t.Errorf("printed as %s", text)
		}
	}
}

func mustEncode(t testing.TB, c command) []byte {
	t.Helper()
	b, err := encodeCommand(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

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

// TestDrainExpiryUsesTheEntryTime checks that no clock decides anything while the log is applied. At any local time,
// and after any jump of the leader's clock between two entries, a drain ends at the entry that ends it, and no entry
// brings it back. Raft itself uses the monotonic clock, which clock steps do not change.
func TestDrainExpiryUsesTheEntryTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, index := &State{}, uint64(0)
		do := func(c command) {
			data, err := encodeCommand(c)
			if err != nil {
				t.Fatal(err)
			}
			index++
			s, _ = applyEntry(s, logEntry{index: index, term: 1, data: data}, stateChecks{})
		}
		until := map[string]time.Time{}
		for range rapid.IntRange(1, 30).Draw(t, "entries") {
			clock := noon.Add(time.Duration(rapid.Int64Range(-1e6, 1e6).Draw(t, "clock, s")) * time.Second) // forward and back
			if rapid.Bool().Draw(t, "drain") {
				path := rapid.SampledFrom([]string{"eu", "us", "ap"}).Draw(t, "path")
				end := time.Time{}
				if rapid.Bool().Draw(t, "ends") {
					end = clock.Add(time.Duration(rapid.Int64Range(1, 1e5).Draw(t, "for, s")) * time.Second)
				}
				do(command{Kind: kindPutDrain, Path: path, Until: end, At: clock})
				until[path] = end
				continue
			}
			do(command{Kind: kindExpireDrains, At: clock})
			for path, end := range until {
				if !end.IsZero() && !clock.Before(end) {
					delete(until, path)
				}
			}
		}
		if len(s.Drains) != len(until) {
			t.Fatalf("%d drains are in force, want %d", len(s.Drains), len(until))
		}
		for _, d := range s.Drains {
			if end, ok := until[d.Path]; !ok || !end.Equal(d.Until) {
				t.Fatalf("drain of %s ends %s, want %s", d.Path, d.Until, end)
			}
		}
	})
}
