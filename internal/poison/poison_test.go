package poison

import (
	"hash/maphash"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.Unix(1000, 0)

func TestSecondDeathCondemnsRequest(t *testing.T) {
	var m DeathMemory
	if trial, ok := m.TryRequest(1, t0); trial || !ok {
		t.Error("an unknown request is not served as any other")
	}
	if v := m.RecordDeath(1, 1, 1, t0); v != Suspect {
		t.Errorf("after one death it is %s", v)
	}
	if v := m.RecordDeath(1, 1, 1, t0); v != Suspect {
		t.Errorf("one death counted twice: %s", v)
	}
	if trial, ok := m.TryRequest(1, t0); !trial || !ok {
		t.Error("a suspect has no further attempt")
	}
	if _, ok := m.TryRequest(1, t0); ok {
		t.Error("a suspect has two attempts at once")
	}
	m.EndTrial(1)
	if trial, ok := m.TryRequest(1, t0); !trial || !ok {
		t.Error("an attempt that ended without a death was the last")
	}
	if v := m.RecordDeath(1, 2, MinSharedRequests, t0.Add(time.Second)); v != Condemned {
		t.Errorf("after the second death it is %s", v)
	}
	if _, ok := m.TryRequest(1, t0.Add(time.Second)); ok {
		t.Error("a condemned request is served")
	}
	if v := m.VerdictFor(2, t0); v != Clear {
		t.Errorf("another request is %s", v)
	}
	if _, ok := m.TryRequest(1, t0.Add(time.Second+DeathRetention)); !ok {
		t.Error("it is refused for longer than that")
	}
}

func TestDeathUnderManyRequestsSuspectsNone(t *testing.T) {
	var m DeathMemory
	for p := uint64(1); p <= 50; p++ {
		if v := m.RecordDeath(p, 1, 50, t0); v != SharedDeath {
			t.Fatalf("one of 50 is %s", v)
		}
		if trial, ok := m.TryRequest(p, t0); trial || !ok {
			t.Fatal("one of 50 is not served as any other")
		}
	}
	if v := m.RecordDeath(1, 2, 50, t0); v != Suspect {
		t.Errorf("after a second death it is %s", v)
	}
	if v := m.RecordDeath(1, 3, 50, t0); v != Condemned {
		t.Errorf("after a third death it is %s", v)
	}
	m.RecordSuccess(2)
	if v := m.RecordDeath(2, 4, MinSharedRequests, t0); v != SharedDeath {
		t.Errorf("a request that was answered meanwhile is %s", v)
	}
	if v := m.RecordDeath(60, 5, MinSharedRequests-1, t0); v != Suspect {
		t.Errorf("one of %d is %s", MinSharedRequests-1, v)
	}
}

func TestVerdictOfAnotherTierIsAdopted(t *testing.T) {
	var m DeathMemory
	m.RaiseVerdict(1, Clear, t0)
	if m.Len() != 0 {
		t.Error("nothing is remembered as something")
	}
	m.RaiseVerdict(1, Suspect, t0)
	m.RaiseVerdict(1, SharedDeath, t0)
	if v := m.RecordDeath(1, 1, 1, t0); v != Condemned {
		t.Errorf("a death after one elsewhere makes it %s", v)
	}
	m.RaiseVerdict(2, Condemned, t0)
	if _, ok := m.TryRequest(2, t0); ok {
		t.Error("what another tier condemned is served")
	}
}

func TestFingerprintDependsOnTenantModelAndBody(t *testing.T) {
	seed := maphash.MakeSeed()
	a := ComputeFingerprint(seed, "t", "m", []byte("x"))
	for _, b := range []uint64{
		ComputeFingerprint(seed, "u", "m", []byte("x")), ComputeFingerprint(seed, "t", "n", []byte("x")), ComputeFingerprint(seed, "t", "m", []byte("y")),
		ComputeFingerprint(seed, "tm", "", []byte("x")), ComputeFingerprint(maphash.MakeSeed(), "t", "m", []byte("x")),
	} {
		if a == b {
			t.Error("two requests have one fingerprint")
		}
	}
	if a != ComputeFingerprint(seed, "t", "m", []byte("x")) {
		t.Error("one request has two fingerprints")
	}
}

// TestNoRequestKillsThreeTimes simulates arbitrary clients against workers that some requests kill. A
// fingerprint that is alone at its worker kills at most twice within DeathRetention, among others at most three
// times, and memory is bounded.
func TestNoRequestKillsThreeTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m DeathMemory
		now, event := t0, uint64(0)
		type deaths struct {
			at []time.Time
		}
		killed := map[uint64]*deaths{}
		running := map[uint64]bool{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "s")) * time.Second)
			p := rapid.Uint64Range(1, 6).Draw(t, "request")
			trial, ok := m.TryRequest(p, now)
			if !ok {
				if m.VerdictFor(p, now) < Suspect {
					t.Fatal("a request that is no suspect is refused")
				}
				continue
			}
			if trial && running[p] {
				t.Fatal("two further attempts at once")
			}
			if p%2 == 0 { // harmless: it may be cancelled or answered
				if rapid.Bool().Draw(t, "answered") {
					m.RecordSuccess(p)
				}
				if trial {
					m.EndTrial(p)
				}
				continue
			}
			event++
			together := rapid.IntRange(1, 6).Draw(t, "together")
			m.RecordDeath(p, event, together, now)
			if trial {
				m.EndTrial(p)
			}
			k := killed[p]
			if k == nil {
				k = &deaths{}
				killed[p] = k
			}
			k.at = append(k.at, now)
			if n := len(k.at); n > 3 && now.Sub(k.at[n-4]) < DeathRetention {
				t.Fatalf("request %d has killed four workers in %s", p, now.Sub(k.at[n-4]))
			}
			if n := len(k.at); together < MinSharedRequests && n > 2 && m.VerdictFor(p, now) < Condemned && now.Sub(k.at[n-3]) < DeathRetention {
				t.Fatalf("request %d killed three workers and is %s", p, m.VerdictFor(p, now))
			}
		}
	})
}

// TestBoundOfACrowd simulates a request that kills every worker, alone or among others, with zones that report
// their verdicts to a gateway: one zone loses at most three workers, and each further zone one more. A request
// that is alone kills two, for any number of zones.
func TestBoundOfACrowd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var gateway DeathMemory
		zones := make([]DeathMemory, rapid.IntRange(1, 4).Draw(t, "zones"))
		crowded, deaths := rapid.Bool().Draw(t, "crowded"), 0
		for try := range 20 {
			trial, ok := gateway.TryRequest(1, t0)
			if !ok {
				break
			}
			zone := &zones[rapid.IntRange(0, len(zones)-1).Draw(t, "zone")]
			zone.RaiseVerdict(1, min(gateway.VerdictFor(1, t0), Suspect), t0)
			together := 1
			if crowded {
				together = rapid.IntRange(1, 2*MinSharedRequests).Draw(t, "together")
			}
			if zone.RecordDeath(1, uint64(try+1), together, t0) >= Suspect {
				gateway.RaiseVerdict(1, zone.VerdictFor(1, t0), t0)
			}
			if deaths++; trial {
				gateway.EndTrial(1)
			}
		}
		if most := len(zones) + 2; crowded && deaths > most || !crowded && deaths != 2 {
			t.Fatalf("%d workers of %d zones died, crowded %v", deaths, len(zones), crowded)
		}
	})
	var m DeathMemory
	for i, want := range []DeathVerdict{SharedDeath, Suspect, Condemned} {
		if v := m.RecordDeath(1, uint64(i+1), MinSharedRequests, t0); v != want {
			t.Errorf("after %d deaths in a crowd it is %s, want %s", i+1, v, want)
		}
	}
}

func TestDeathMemoryIsBounded(t *testing.T) {
	var m DeathMemory
	for p := uint64(1); p <= MaxEntries+10; p++ {
		m.RecordDeath(p, p, 1, t0.Add(time.Duration(p)))
	}
	if m.Len() != MaxEntries || m.VerdictFor(10, t0) != Clear || m.VerdictFor(11, t0) != Suspect {
		t.Errorf("%d are remembered, the tenth as %s, the eleventh as %s", m.Len(), m.VerdictFor(10, t0), m.VerdictFor(11, t0))
	}
}

func BenchmarkTryUnknownRequest(b *testing.B) {
	var m DeathMemory
	b.ReportAllocs()
	for b.Loop() {
		m.TryRequest(7, t0)
	}
}
