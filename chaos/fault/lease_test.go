package fault

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// fakeInjury records what is in force.
type fakeInjury struct {
	inForce   map[string]bool
	failApply error
	failClear int // so many attempts
	leak      bool
}

func (f *fakeInjury) findVictims(Spec) ([]string, error) { return []string{"victim"}, nil }

func (f *fakeInjury) apply(_ context.Context, l *lease) error {
	f.inForce[l.Spec.ID] = true
	return f.failApply
}

func (f *fakeInjury) clear(_ context.Context, l *lease) error {
	if f.failClear > 0 {
		f.failClear--
		return errors.New("not yet")
	}
	if !f.leak {
		delete(f.inForce, l.Spec.ID)
	}
	return nil
}

func (f *fakeInjury) probe(_ context.Context, l *lease) (bool, string, error) {
	return f.inForce[l.Spec.ID], "looked", nil
}

func openFakePlace(t *testing.T, file leaseFile) (*place, *fakeInjury) {
	t.Helper()
	f := &fakeInjury{inForce: map[string]bool{}}
	p, err := openPlace(t.Context(), "test", file, func(Kind) injury { return f }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p, f
}

func pauseSpec(id string, lease time.Duration) Spec {
	return Spec{ID: id, Kind: ProcessPause, Target: Target{Node: "g1"}, Lease: lease}
}

// startPlace runs a place until the test ends.
func startPlace(t *testing.T, p *place) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func TestLeaseEndsByItselfAndIsVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := openFakePlace(t, "")
		defer startPlace(t, p)()
		if err := p.inject(t.Context(), pauseSpec("a", 5*time.Second)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5*time.Second - time.Millisecond)
		synctest.Wait()
		if s, err := p.verify(t.Context(), "a"); err != nil || s.Phase != PhaseActive {
			t.Fatalf("before its end: %+v, %v", s, err)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if s, err := p.verify(t.Context(), "a"); err != nil || s.Phase != PhaseCleared || f.inForce["a"] {
			t.Fatalf("at its end: %+v, %v", s, err)
		}
		time.Sleep(rememberFor + time.Second)
		p.inject(t.Context(), pauseSpec("b", time.Second))
		time.Sleep(time.Second)
		synctest.Wait()
		if s, _ := p.verify(t.Context(), "a"); s.Phase != PhaseUnknown {
			t.Errorf("an hour later it is %s, want unknown", s.Phase)
		}
	})
}

func TestRenewalExtendsALeaseAndClearingIsIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := openFakePlace(t, "")
		defer startPlace(t, p)()
		s := pauseSpec("a", 2*time.Second)
		if err := p.inject(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			time.Sleep(1900 * time.Millisecond)
			if err := p.renew(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(1900 * time.Millisecond)
		if err := p.inject(t.Context(), s); err != nil || !f.inForce["a"] { // the same as a renewal
			t.Fatal(err, f.inForce)
		}
		other := s
		other.Target.Node = "g2"
		if err := p.inject(t.Context(), other); err == nil {
			t.Error("another spec under an active id is accepted")
		}
		for range 3 {
			if err := p.clear(t.Context(), "a"); err != nil || f.inForce["a"] {
				t.Fatal(err, f.inForce)
			}
		}
		if err := p.clear(t.Context(), "never"); err != nil {
			t.Errorf("clearing an unknown fault: %v", err)
		}
		if err := p.renew(t.Context(), "a"); err == nil {
			t.Error("a lease that has ended is renewed")
		}
	})
}

func TestFailedClearingIsRetriedAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := openFakePlace(t, "")
		defer startPlace(t, p)()
		if err := p.inject(t.Context(), pauseSpec("a", time.Second)); err != nil {
			t.Fatal(err)
		}
		f.failClear = 3
		time.Sleep(time.Second + clearRetry/2)
		synctest.Wait()
		if s, _ := p.verify(t.Context(), "a"); s.Phase != PhaseUncleared || s.Probe != "not yet" {
			t.Errorf("after a failure to clear: %+v", s)
		}
		time.Sleep(3 * clearRetry)
		synctest.Wait()
		if s, _ := p.verify(t.Context(), "a"); s.Phase != PhaseCleared || f.inForce["a"] {
			t.Errorf("after the retries: %+v", s)
		}
	})
}

// TestTraceOfAClearedFaultIsFound: a fault that reports success and leaves a trace is not cleared.
func TestTraceOfAClearedFaultIsFound(t *testing.T) {
	p, f := openFakePlace(t, "")
	f.leak = true
	if err := p.inject(t.Context(), pauseSpec("a", time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := p.clear(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if s, _ := p.verify(t.Context(), "a"); s.Phase != PhaseUncleared {
		t.Errorf("it is %s", s.Phase)
	}
}

func TestFailedInjectionLeavesNothing(t *testing.T) {
	file := leaseFile(filepath.Join(t.TempDir(), "leases.json"))
	p, f := openFakePlace(t, file)
	f.failApply = errors.New("half done")
	if err := p.inject(t.Context(), pauseSpec("a", time.Minute)); err == nil || len(f.inForce) > 0 || len(p.list()) > 0 {
		t.Errorf("%v, in force %v, listed %v", err, f.inForce, p.list())
	}
	if table, err := file.readTable(); err != nil || len(table.leases) > 0 {
		t.Errorf("stored: %v, %v", table, err)
	}
}

// TestRestartedPlaceClearsWhatHasEndedAndKeepsTheRest: a new process reads the leases of a killed one.
func TestRestartedPlaceClearsWhatHasEndedAndKeepsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := leaseFile(filepath.Join(t.TempDir(), "leases.json"))
		p, _ := openFakePlace(t, file)
		for id, d := range map[string]time.Duration{"short": time.Second, "long": time.Minute} {
			if err := p.inject(t.Context(), pauseSpec(id, d)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second) // the process is dead: nothing runs
		f := &fakeInjury{inForce: map[string]bool{"short": true, "long": true}}
		again, err := openPlace(t.Context(), "test", file, func(Kind) injury { return f }, slog.New(slog.DiscardHandler))
		if err != nil || f.inForce["short"] || !f.inForce["long"] {
			t.Fatalf("%v, in force: %v", err, f.inForce)
		}
		defer startPlace(t, again)()
		time.Sleep(51 * time.Second)
		synctest.Wait()
		if f.inForce["long"] {
			t.Error("the other lease did not end")
		}
		for _, id := range []string{"short", "long"} {
			if s, _ := again.verify(t.Context(), id); s.Phase != PhaseCleared {
				t.Errorf("%s is %s", id, s.Phase)
			}
		}
	})
}

// TestClockSetBackDoesNotLengthenALease: a restored lease lasts no longer than its length.
func TestClockSetBackDoesNotLengthenALease(t *testing.T) {
	now := time.Now()
	table := &leaseTable{leases: map[string]*lease{"a": {Spec: pauseSpec("a", time.Minute), Until: now.Add(5 * time.Hour)}}}
	table.boundRestored(now)
	if got := table.leases["a"].Until; !got.Equal(now.Add(time.Minute)) {
		t.Errorf("it ends at %s, want in a minute", got.Sub(now))
	}
}

// TestLeaseTableHoldsItsBounds: under any sequence of calls an active lease ends on time, an ended one is due until it is
// cleared, and the table stays bounded.
func TestLeaseTableHoldsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := &leaseTable{leases: map[string]*lease{}}
		now := time.Unix(1e9, 0)
		ends := map[string]time.Time{}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
				s := pauseSpec(id, time.Duration(rapid.IntRange(1, 10).Draw(t, "lease"))*time.Second)
				if _, _, err := table.addLease(s, nil, now); err == nil {
					ends[id] = now.Add(s.Lease)
				}
			},
			"renew": func(t *rapid.T) {
				id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
				if table.renewLease(id, now) == nil {
					ends[id] = now.Add(table.leases[id].Spec.Lease)
				}
			},
			"pass": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond)
				for _, l := range table.endExpired(now) {
					l.Cleared = rapid.Bool().Draw(t, "cleared")
				}
				table.forgetOld(now)
			},
			"": func(t *rapid.T) {
				for id, l := range table.leases {
					if !l.Ended && !l.Until.Equal(ends[id]) {
						t.Fatalf("%s ends at %s, want %s", id, l.Until, ends[id])
					}
					if at, ok := table.nextExpiry(); !l.Ended && (!ok || at.After(l.Until)) {
						t.Fatalf("the next expiry is %s, after %s of %s", at, l.Until, id)
					}
				}
			},
		})
	})
}

func TestInvalidSpecsAreRefusedWithWhatIsValid(t *testing.T) {
	good := Spec{ID: "x", Kind: LinkDelay, Target: Target{Link: "raft:g1>*"}, Params: map[string]string{"delay": "80ms"}, Lease: time.Second}
	if err := CheckSpec(good); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Spec){
		"use 1 to 64 letters":                         func(s *Spec) { s.ID = "../x" },
		`unknown fault "nonsense": use one of link_d`: func(s *Spec) { s.Kind = "nonsense" },
		"a lease of 2h0m0s: use 100ms to 1h":          func(s *Spec) { s.Lease = 2 * time.Hour },
		"exactly one target of link, node, region":    func(s *Spec) { s.Target.Node = "g1" },
		"has no parameter \"dely\": use delay, direc": func(s *Spec) { s.Params = map[string]string{"dely": "1ms"} },
		"link_delay needs delay: a duration from 1ms": func(s *Spec) { s.Params = nil },
		`delay "99h": use a duration from 1ms to 10s`: func(s *Spec) { s.Params = map[string]string{"delay": "99h"} },
		"direction \"up\": use one of both, forward":  func(s *Spec) { s.Params["direction"] = "up" },
		"process_pause cannot be aimed at a link: us": func(s *Spec) { s.Kind = ProcessPause },
		"leader_dead has no target: leave it empty":   func(s *Spec) { s.Kind = LeaderDead },
		`share "NaN": use a number from 0 to 1`:       func(s *Spec) { s.Kind, s.Params = LinkLoss, map[string]string{"share": "NaN"} },
	} {
		s := good
		s.Params = map[string]string{"delay": "80ms"}
		change(&s)
		if err := CheckSpec(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func FuzzStoredLeases(f *testing.F) {
	f.Add([]byte(`[{"spec":{"id":"a","kind":"process_pause","target":{"node":"g1"},"lease":1000000000},"until":"2026-01-01T00:00:00Z"}]`))
	f.Add([]byte(`[null]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := decodeLeases(b)
		if err != nil {
			return
		}
		for _, l := range list {
			if err := CheckSpec(l.Spec); err != nil {
				t.Errorf("a stored lease with an invalid spec is accepted: %v", err)
			}
		}
	})
}
