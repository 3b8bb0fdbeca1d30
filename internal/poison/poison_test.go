package poison

import (
	"hash/maphash"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.Unix(1000, 0)

func TestASecondDeathCondemns(t *testing.T) {
	var m Memory
	if trial, ok := m.Try(1, t0); trial || !ok {
		t.Error("an unknown request is not served as any other")
	}
	if v := m.Died(1, 1, 1, t0); v != Suspect {
		t.Errorf("after one death it is %s", v)
	}
	if v := m.Died(1, 1, 1, t0); v != Suspect {
		t.Errorf("one death counted twice: %s", v)
	}
	if trial, ok := m.Try(1, t0); !trial || !ok {
		t.Error("a suspect has no further attempt")
	}
	if _, ok := m.Try(1, t0); ok {
		t.Error("a suspect has two attempts at once")
	}
	m.EndTrial(1)
	if trial, ok := m.Try(1, t0); !trial || !ok {
		t.Error("an attempt that ended without a death was the last")
	}
	if v := m.Died(1, 2, Crowd, t0.Add(time.Second)); v != Condemned {
		t.Errorf("after the second death it is %s", v)
	}
	if _, ok := m.Try(1, t0.Add(time.Second)); ok {
		t.Error("a condemned request is served")
	}
	if v := m.Verdict(2, t0); v != Clear {
		t.Errorf("another request is %s", v)
	}
	if _, ok := m.Try(1, t0.Add(time.Second+Keep)); !ok {
		t.Error("it is refused for longer than that")
	}
}

func TestACrowdIsNotSuspected(t *testing.T) {
	var m Memory
	for p := uint64(1); p <= 50; p++ {
		if v := m.Died(p, 1, 50, t0); v != Seen {
			t.Fatalf("one of 50 is %s", v)
		}
		if trial, ok := m.Try(p, t0); trial || !ok {
			t.Fatal("one of 50 is not served as any other")
		}
	}
	if v := m.Died(1, 2, 50, t0); v != Suspect {
		t.Errorf("after a second death it is %s", v)
	}
	if v := m.Died(1, 3, 50, t0); v != Condemned {
		t.Errorf("after a third death it is %s", v)
	}
	m.Survived(2)
	if v := m.Died(2, 4, Crowd, t0); v != Seen {
		t.Errorf("a request that was answered meanwhile is %s", v)
	}
	if v := m.Died(60, 5, Crowd-1, t0); v != Suspect {
		t.Errorf("one of %d is %s", Crowd-1, v)
	}
}

func TestAnotherTiersVerdict(t *testing.T) {
	var m Memory
	m.Raise(1, Clear, t0)
	if m.Len() != 0 {
		t.Error("nothing is remembered as something")
	}
	m.Raise(1, Suspect, t0)
	m.Raise(1, Seen, t0)
	if v := m.Died(1, 1, 1, t0); v != Condemned {
		t.Errorf("a death after one elsewhere makes it %s", v)
	}
	m.Raise(2, Condemned, t0)
	if _, ok := m.Try(2, t0); ok {
		t.Error("what another tier condemned is served")
	}
}

func TestFingerprintsTellTenantsModelsAndBodiesApart(t *testing.T) {
	seed := maphash.MakeSeed()
	a := Fingerprint(seed, "t", "m", []byte("x"))
	for _, b := range []uint64{Fingerprint(seed, "u", "m", []byte("x")), Fingerprint(seed, "t", "n", []byte("x")), Fingerprint(seed, "t", "m", []byte("y")),
		Fingerprint(seed, "tm", "", []byte("x")), Fingerprint(maphash.MakeSeed(), "t", "m", []byte("x"))} {
		if a == b {
			t.Error("two requests have one fingerprint")
		}
	}
	if a != Fingerprint(seed, "t", "m", []byte("x")) {
		t.Error("one request has two fingerprints")
	}
}

// TestNoRequestKillsThreeTimes plays any clients against workers that some requests kill: each fingerprint that is alone at its
// worker kills twice within Keep at most, in company three times; and what is remembered is bounded.
func TestNoRequestKillsThreeTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Memory
		now, event := t0, uint64(0)
		type deaths struct {
			at []time.Time
			n  int
		}
		killed := map[uint64]*deaths{}
		running := map[uint64]bool{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "s")) * time.Second)
			p := rapid.Uint64Range(1, 6).Draw(t, "request")
			trial, ok := m.Try(p, now)
			if !ok {
				if m.Verdict(p, now) < Suspect {
					t.Fatal("a request that is no suspect is refused")
				}
				continue
			}
			if trial && running[p] {
				t.Fatal("two further attempts at once")
			}
			if p%2 == 0 { // harmless: it may be cancelled, or answered
				if rapid.Bool().Draw(t, "answered") {
					m.Survived(p)
				}
				if trial {
					m.EndTrial(p)
				}
				continue
			}
			event++
			together := rapid.IntRange(1, 6).Draw(t, "together")
			m.Died(p, event, together, now)
			if trial {
				m.EndTrial(p)
			}
			k := killed[p]
			if k == nil {
				k = &deaths{}
				killed[p] = k
			}
			k.at = append(k.at, now)
			if n := len(k.at); n > 3 && now.Sub(k.at[n-4]) < Keep {
				t.Fatalf("request %d has killed four workers in %s", p, now.Sub(k.at[n-4]))
			}
			if n := len(k.at); together < Crowd && n > 2 && m.Verdict(p, now) < Condemned && now.Sub(k.at[n-3]) < Keep {
				t.Fatalf("request %d killed three workers and is %s", p, m.Verdict(p, now))
			}
		}
	})
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	var m Memory
	for p := uint64(1); p <= MaxEntries+10; p++ {
		m.Died(p, p, 1, t0.Add(time.Duration(p)))
	}
	if m.Len() != MaxEntries || m.Verdict(10, t0) != Clear || m.Verdict(11, t0) != Suspect {
		t.Errorf("%d are remembered, the tenth as %s, the eleventh as %s", m.Len(), m.Verdict(10, t0), m.Verdict(11, t0))
	}
}

func BenchmarkVerdictOfNothing(b *testing.B) {
	var m Memory
	b.ReportAllocs()
	for b.Loop() {
		m.Try(7, t0)
	}
}
