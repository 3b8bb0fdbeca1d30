package local

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/engine"
)

// TestTheSummaryTellsOfALateWorker: of a zone whose only worker has owed its first token for longer than it may take, the
// tiers above hear a longer wait and less headroom long before the silence counts as a stall.
func TestTheSummaryTellsOfALateWorker(t *testing.T) {
	now := time.Unix(1000, 0)
	l, err := NewLab(LabConfig{Region: "here", Zone: "a", Name: "here-a"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := l.Add(discover.Worker{Name: "w", GPU: "H100"}, "m", 8192, now)
	if err != nil {
		t.Fatal(err)
	}
	l.Seat(now)
	page := engine.Reading{At: now, LoadAt: now, KVTotal: 400_000, Slots: 256}
	l.Scraped(w, &page, nil, now)
	look := func(at time.Time) (wait time.Duration, headroom int64) {
		l.Patrol(at)
		s := l.Summary(at)
		m := s.Model("m")
		if m == nil || m.Ready != 1 {
			t.Fatalf("%s after the request the zone has %+v, down: %q", at.Sub(now), m, l.Down(w))
		}
		wait, _ = m.Wait(spec.Standard)
		return wait, m.Headroom[spec.Standard]
	}
	idle, free := look(now)
	v := l.Visit(&LabAsk{Model: "m", Class: spec.Standard, Prompt: 500, Bytes: 2000}, now)
	a, refusal, waits := l.Enter(v, now)
	if !a.Is() {
		t.Fatalf("the request is not sent: %v, waits %v", refusal, waits)
	}
	l.Begin(a, func() {})
	if wait, left := look(now.Add(3 * time.Second)); wait < idle+2*time.Second || left >= free {
		t.Errorf("after 3 s of silence the zone states a wait of %s and %d tokens/s of headroom; idle, %s and %d", wait, left, idle, free)
	}
	l.FirstByte(a, now.Add(4*time.Second))
	if wait, _ := look(now.Add(4 * time.Second)); wait > idle+100*time.Millisecond {
		t.Errorf("its first token is there, and the zone states a wait of %s", wait)
	}
}
