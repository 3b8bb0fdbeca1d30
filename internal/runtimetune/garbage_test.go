package runtimetune

import (
	"testing"
	"time"
)

func TestComputeGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: maxPercent, 1 << 20: maxPercent, 4 << 20: 600, 16 << 20: 150, 24 << 20: defaultPercent, 1 << 30: defaultPercent} {
		if got := computeGCPercent(live, 100<<20); got != want {
			t.Errorf("%d bytes and busy: %d %%, want %d", live, got, want)
		}
	}
	for rate, want := range map[uint64]int{0: minPercent, 4 << 20: minPercent, 16 << 20: 50, 30 << 20: defaultPercent, 1 << 40: defaultPercent} {
		if got := computeGCPercent(1<<30, rate); got != want {
			t.Errorf("%d bytes a second: %d %%, want %d", rate, got, want)
		}
	}
	for live, want := range map[uint64]int{60 << 20: defaultPercent, 64 << 20: 300, 96 << 20: 200, 150 << 20: 125, 192 << 20: defaultPercent} {
		if got := computeGCPercent(live, 100<<20); got != want {
			t.Errorf("%d bytes and busy: %d %%, want %d", live, got, want)
		}
		if got := computeGCPercent(live, 16<<20); got != 50 {
			t.Errorf("%d bytes and not very busy: %d %%, want 50", live, got)
		}
	}
	if got := computeGCPercent(4<<20, 0); got != defaultPercent {
		t.Errorf("small and silent: %d %%, want %d", got, defaultPercent)
	}
}

// TestAllocRateRisesAtOnceAndFallsSlowly: a process that becomes busy must not keep the GOGC of an idle one.
func TestAllocRateRisesAtOnceAndFallsSlowly(t *testing.T) {
	var r allocationMeter
	now, made := time.Unix(1, 0), uint64(1<<30) // before the first sample
	r.addSample(made, now)
	if r.allocRate != 0 {
		t.Fatalf("%d bytes a second before anything is known", r.allocRate)
	}
	now, made = now.Add(2*time.Second), made+100<<20
	if r.addSample(made, now); r.allocRate != 50<<20 {
		t.Fatalf("%d bytes a second after the first busy look, want %d", r.allocRate, 50<<20)
	}
	now = now.Add(time.Second)
	if r.addSample(made, now); r.allocRate <= 25<<20 {
		t.Errorf("%d bytes a second after one quiet second", r.allocRate)
	}
	for range 20 {
		now = now.Add(time.Second)
		r.addSample(made, now)
	}
	if r.allocRate > 1<<20 {
		t.Errorf("%d bytes a second after twenty quiet seconds", r.allocRate)
	}
}

// TestMemoryIsReturnedAfterBusyPeriod: after an idle period, if there is enough to return, and not repeatedly.
func TestMemoryIsReturnedAfterBusyPeriod(t *testing.T) {
	var r allocationMeter
	now, made := time.Unix(1, 0), uint64(0)
	step := func(makes, live, held uint64) bool {
		now, made = now.Add(tuneInterval), made+makes
		return r.addSample(made, now) && r.shouldReturnMemory(live, held, now)
	}
	for range 20 {
		if step(25<<20, 10<<20, 30<<20) {
			t.Fatal("while it is busy")
		}
	}
	given := 0
	for range 29 {
		if step(1<<20, 10<<20, 30<<20) {
			given++
		}
	}
	if given != 1 {
		t.Errorf("memory was given back %d times, want once", given)
	}
	r.returnedAt = time.Time{}
	for range 20 {
		if step(1<<20, 10<<20, 17<<20) || step(1<<20, 100<<20, 120<<20) {
			t.Fatal("for next to nothing")
		}
	}
}
