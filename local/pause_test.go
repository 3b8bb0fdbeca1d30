package local

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
)

// busyFloor has three workers that hold an answer each, which they are emitting.
func busyFloor(t *testing.T, now time.Time) (*floor, []*worker) {
	t.Helper()
	f := newFloor(Config{Name: "a", Region: "r", Zone: "z", Health: health.Config{Stall: 10 * time.Second}})
	var ws []*worker
	for _, name := range []string{"w1", "w2", "w3"} {
		w := newTestWorker(t, discover.Worker{Name: name, URL: "http://10.0.0.1:1", Models: []string{"m"}, Weight: 1})
		if !f.add(w, now) {
			t.Fatal("no room for a worker")
		}
		w.breaker.ProbeOK(now)
		w.breaker.Warmed(now)
		w.breaker.Began(now)
		w.breaker.Progress(now)
		w.open++
		w.places["m"].used = now
		ws = append(ws, w)
	}
	return f, ws
}

// TestAStoppedProcessEjectsNobody: a process that was stopped for longer than the stall, or for an hour, finds every worker
// silent for so long. None is taken out for that, whether the patrol or a scrape comes first; one that stays silent while
// this process runs is.
func TestAStoppedProcessEjectsNobody(t *testing.T) {
	for _, stop := range []time.Duration{3 * time.Second, 11 * time.Second, time.Hour} {
		for _, scrapeFirst := range []bool{false, true} {
			now := time.Unix(1e9, 0)
			f, ws := busyFloor(t, now)
			for range 8 {
				now = now.Add(patrolEvery)
				if out, stood := f.patrol(now); len(out) > 0 || stood > 0 {
					t.Fatalf("a healthy zone lost %v, stood %v", out, stood)
				}
			}
			now = now.Add(stop)
			if scrapeFirst {
				if _, after := f.booked(ws[0], ws[0].reading, ws[0].turn, nil, now); after != "ready" {
					t.Errorf("a scrape after a stop of %v left the worker %s", stop, after)
				}
			}
			out, stood := f.patrol(now)
			if len(out) > 0 || stood < stop {
				t.Errorf("a stop of %v (seen as %v) took out %v", stop, stood, out)
			}
			if idle := now.Sub(ws[1].places["m"].used); idle > 3*time.Second {
				t.Errorf("a stop of %v made a model idle for %v", stop, idle)
			}
			for range 60 { // 15 s: the first two go on, the third does not
				now = now.Add(patrolEvery)
				ws[0].breaker.Progress(now)
				ws[1].breaker.Progress(now)
				more, _ := f.patrol(now)
				out = append(out, more...)
			}
			if len(out) != 1 || out[0] != "w3" {
				t.Errorf("after a stop of %v the stalled were %v, want w3", stop, out)
			}
		}
	}
}

// TestABusyMachineForgivesNothing: ticks that come late by a second are no stop.
func TestABusyMachineForgivesNothing(t *testing.T) {
	now := time.Unix(1e9, 0)
	f, _ := busyFloor(t, now)
	var out []string
	for range 16 {
		now = now.Add(time.Second)
		more, stood := f.patrol(now)
		if out = append(out, more...); stood > 0 {
			t.Errorf("a tick a second late counts as a stop of %v", stood)
		}
	}
	if len(out) != 1 { // max_ejected is half, and their probes pass
		t.Errorf("of three silent workers %v were taken out", out)
	}
	if began := now; overslept(began, began.Add(scrapeTimeout+time.Second), scrapeTimeout) || !overslept(began, began.Add(time.Minute), scrapeTimeout) {
		t.Error("a probe's own time limit counts as a stop, or a stop does not")
	}
}

func newTestWorker(t *testing.T, d discover.Worker) *worker {
	t.Helper()
	e, err := engine.New(d.Engine, engine.Config{Base: d.URL, Client: &engine.Client{}})
	if err != nil {
		t.Fatal(err)
	}
	return &worker{declared: d, engine: e, stop: func() {}, look: make(chan struct{}, 1)}
}
