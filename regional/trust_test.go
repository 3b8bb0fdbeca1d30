package regional

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
)

// zonesOf is a gateway with two zones that are alike.
func zonesOf(t *testing.T, now time.Time) *Lab {
	t.Helper()
	s, err := spec.Decode("the test's spec", []byte(twoRegions))
	if err != nil {
		t.Fatal(err)
	}
	l := NewLab(LabConfig{Name: "fra-gw", Region: "fra", Spec: s, Seed: 1}, now)
	for _, z := range []string{"a", "b"} {
		l.Hear(&capacity.Summary{Path: capacity.Path{Region: "fra", Zone: z, Instance: "l1"}, Endpoint: "fra-" + z + ":1", Boot: 1, Seq: 1, Models: []capacity.Model{{
			Name: "m", Ready: 1, Total: 1, Headroom: [3]int64{9000, 9000, 9000}, MaxContext: 100_000,
			Hardware: []capacity.Hardware{{Name: "h100", Ready: 1, PrefillRate: 10_000, DecodeRate: 1000}},
		}}}, now)
	}
	l.Look(now)
	return l
}

func (l *Lab) take(t *testing.T, session uint64, now time.Time) *LabRequest {
	t.Helper()
	r, refusal := l.Take(&LabAsk{Tenant: "acme", Model: "m", Prompt: 5000, MaxTokens: 10, Session: session}, now)
	if refusal != nil {
		t.Fatal(refusal)
	}
	return r
}

// TestGatewaysBelieveOfHomesWhatAnswersSay: a session's home is believed to have its prompt until answers say that it has not, and
// engines that say nothing of their caches are believed.
func TestGatewaysBelieveOfHomesWhatAnswersSay(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := zonesOf(t, now)
	turn := func(u openai.Usage) int64 {
		r := l.take(t, 7, now)
		v, ok := l.Choose(r, now)
		if !ok {
			t.Fatal("nobody may take it")
		}
		l.Leave(r, u, true)
		return v.Cached
	}
	if n := turn(openai.Usage{Stated: true, Prompt: 5000, Completion: 10}); n != 0 {
		t.Errorf("of a new session %d tokens are believed to be cached", n)
	}
	for range 30 {
		if n := turn(openai.Usage{Stated: true, Prompt: 5000, Completion: 10}); n != 5000 {
			t.Fatalf("where engines say nothing of caches %d of 5,000 tokens are believed to be cached", n)
		}
	}
	turn(openai.Usage{Stated: true, Prompt: 5000, Completion: 10, Cached: 5000})
	for range 60 {
		turn(openai.Usage{Stated: true, Prompt: 5000, Completion: 10})
	}
	if n := turn(openai.Usage{}); n > 500 {
		t.Errorf("after sixty answers with nothing cached %d of 5,000 tokens are believed to be", n)
	}
}

// TestARefusedAttemptMovesNobodysHome: where a request was sent to and refused has kept nothing, so that it is still at home where
// its session was served before.
func TestARefusedAttemptMovesNobodysHome(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := zonesOf(t, now)
	first := l.take(t, 7, now)
	v, ok := l.Choose(first, now)
	if !ok {
		t.Fatal("nobody may take it")
	}
	l.Leave(first, openai.Usage{}, true)
	home := v.Path
	r := l.take(t, 7, now)
	if v, _ = l.Choose(r, now); v.Path != home {
		t.Fatalf("the session goes to %v and not home to %v", v.Path, home)
	}
	other := "a"
	if home.Zone == "a" {
		other = "b"
	}
	l.g.sessions.Served(7, capacity.Path{Region: "fra", Zone: other, Instance: "l1"}, 5000) // as an attempt there has departed
	l.Leave(r, openai.Usage{}, false)
	if v, ok = l.Choose(r, now); !ok || v.Path != home || v.Cached != 5000 {
		t.Errorf("refused elsewhere it goes to %v with %d tokens cached, want %v with all 5,000", v.Path, v.Cached, home)
	}
}
