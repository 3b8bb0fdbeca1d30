package garbage

import (
	"testing"
	"time"
)

func TestGarbagePercent(t *testing.T) {
	for live, want := range map[uint64]int{0: maxPercent, 1 << 20: maxPercent, 4 << 20: 600, 16 << 20: 150, 24 << 20: usualPercent, 1 << 30: usualPercent} {
		if got := garbagePercent(live, 100<<20); got != want {
			t.Errorf("%d bytes and busy: %d %%, want %d", live, got, want)
		}
	}
	for rate, want := range map[uint64]int{0: leastPercent, 4 << 20: leastPercent, 16 << 20: 50, 30 << 20: usualPercent, 1 << 40: usualPercent} {
		if got := garbagePercent(1<<30, rate); got != want {
			t.Errorf("%d bytes a second: %d %%, want %d", rate, got, want)
		}
	}
	for live, want := range map[uint64]int{60 << 20: usualPercent, 64 << 20: 300, 96 << 20: 200, 150 << 20: 125, 192 << 20: usualPercent} {
		if got := garbagePercent(live, 100<<20); got != want {
			t.Errorf("%d bytes and busy: %d %%, want %d", live, got, want)
		}
		if got := garbagePercent(live, 16<<20); got != 50 {
			t.Errorf("%d bytes and not very busy: %d %%, want 50", live, got)
		}
	}
	if got := garbagePercent(4<<20, 0); got != 600 {
		t.Errorf("small and silent: %d %%, want 600", got)
	}
}

// TestRateRisesAtOnce: a process that gets busy must not go on collecting as one that has nothing to do.
func TestRateRisesAtOnce(t *testing.T) {
	var r rhythm
	now, made := time.Unix(1, 0), uint64(1<<30) // before the first look
	r.look(made, now)
	if r.rate != 0 {
		t.Fatalf("%d bytes a second before anything is known", r.rate)
	}
	now, made = now.Add(2*time.Second), made+100<<20
	if r.look(made, now); r.rate != 50<<20 {
		t.Fatalf("%d bytes a second after the first busy look, want %d", r.rate, 50<<20)
	}
	now = now.Add(time.Second)
	if r.look(made, now); r.rate <= 25<<20 {
		t.Errorf("%d bytes a second after one quiet second", r.rate)
	}
	for range 20 {
		now = now.Add(time.Second)
		r.look(made, now)
	}
	if r.rate > 1<<20 {
		t.Errorf("%d bytes a second after twenty quiet seconds", r.rate)
	}
}

// TestWhatABusyTimeLeftIsGivenBack: once it is over for a while, if it is worth it, and not again and again.
func TestWhatABusyTimeLeftIsGivenBack(t *testing.T) {
	var r rhythm
	now, made := time.Unix(1, 0), uint64(0)
	step := func(makes, live, held uint64) bool {
		now, made = now.Add(collectEvery), made+makes
		return r.look(made, now) && r.worth(live, held, now)
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
	r.back = time.Time{}
	for range 20 {
		if step(1<<20, 10<<20, 17<<20) || step(1<<20, 100<<20, 120<<20) {
			t.Fatal("for next to nothing")
		}
	}
}
