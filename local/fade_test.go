package local

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/discover"
)

// TestASilentWorkersBadNameFades: a worker that was slow and is sent nothing is believed as fast as its peers after two
// minutes, with one request at a time until it has answered. When no answer tells,
// the doubt ends by itself.
func TestASilentWorkersBadNameFades(t *testing.T) {
	now, f, ws, usual, view := badName(t)
	for range 480 { // two minutes
		now = now.Add(patrolEvery)
		ws[1].learner.FirstToken(1000, usual)
		ws[2].learner.FirstToken(1000, usual)
		f.patrol(now)
	}
	if s, n := view(); s > 1.1 || n != 1 {
		t.Errorf("after two minutes of silence it is believed to take %.2f of its prior, with %d at once", s, n)
	}
	for range 8 * 240 { // eight minutes, as of answers that are no streams and tell nothing
		now = now.Add(patrolEvery)
		ws[1].learner.FirstToken(1000, usual)
		f.patrol(now)
		if _, n := view(); n == 0 {
			break
		}
	}
	if s, n := view(); s > 1.1 || n != 0 {
		t.Errorf("after minutes more it is believed to take %.2f of its prior, with %d at once", s, n)
	}
}

// TestAnAnswerBringsABadNameBack: one answer as slow as before is enough.
func TestAnAnswerBringsABadNameBack(t *testing.T) {
	now, f, ws, usual, view := badName(t)
	for range 480 {
		now = now.Add(patrolEvery)
		ws[1].learner.FirstToken(1000, usual)
		f.patrol(now)
	}
	ws[0].learner.FirstToken(1000, 4*usual)
	ws[0].refresh(now)
	if s, n := view(); s < 3 || n != 0 {
		t.Errorf("one slow answer later it is believed to take %.2f of its prior, with %d at once", s, n)
	}
}

// badName is a pool of three workers of which the first is known to take four times its prior.
func badName(t *testing.T) (now time.Time, f *floor, ws []*worker, usual float64, view func() (float64, int32)) {
	t.Helper()
	now = time.Unix(1e9, 0)
	f = newFloor(Config{Name: "a", Region: "r", Zone: "z"})
	for _, name := range []string{"w1", "w2", "w3"} {
		w := newTestWorker(t, discover.Worker{Name: name, URL: "http://10.0.0.1:1", Models: []string{"m"}, Weight: 1, GPU: "L4"})
		if !f.add(w, now) {
			t.Fatal("no room for a worker")
		}
		ws = append(ws, w)
	}
	prior := ws[0].prior.Rates
	usual = prior.PrefillBase + 1000/prior.PrefillRate
	for range 50 {
		ws[0].learner.FirstToken(1000, 4*usual)
	}
	view = func() (seconds float64, trials int32) {
		for _, v := range f.pools["m"].view.Workers {
			if v.Name == "w1" {
				return (v.Rates.PrefillBase + 1000/v.Rates.PrefillRate) / usual, v.Trials
			}
		}
		return 0, 0
	}
	ws[0].refresh(now)
	if s, n := view(); s < 3 || n != 0 {
		t.Fatalf("it is believed to take %.2f of its prior, with %d at once", s, n)
	}
	return now, f, ws, usual, view
}
