package warm_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/local/warm"
)

// world plays the zone: it carries actions out, after a while and not always with success.
type world struct {
	t    *rapid.T
	c    warm.Config
	z    warm.Zone
	now  time.Time
	done map[string]time.Time // when what is under way ends
	log  []warm.Action
}

var dawn = time.Unix(1_000_000, 0)

func newWorld(t *rapid.T, floors bool) *world {
	w := &world{t: t, now: dawn, done: map[string]time.Time{}, c: warm.Config{
		PerWorker: rapid.IntRange(1, 2).Draw(t, "perWorker"), PerZone: rapid.IntRange(1, 4).Draw(t, "perZone"),
	}.WithDefaults()}
	models := rapid.IntRange(1, 6).Draw(t, "models")
	workers := rapid.IntRange(1, 4).Draw(t, "workers")
	for range models {
		m := warm.Model{Idle: time.Duration(rapid.IntRange(0, 60).Draw(t, "idle")) * time.Second}
		if floors {
			m.Floor = rapid.IntRange(0, 2).Draw(t, "floor")
		}
		w.z.Models = append(w.z.Models, m)
	}
	for range workers {
		k := warm.Worker{Up: true, Max: rapid.IntRange(0, 3).Draw(t, "max"), Free: 0.5, WakeSeconds: 2}
		k.MayWake = rapid.Bool().Draw(t, "mayWake")
		k.MaySleep = k.MayWake && rapid.Bool().Draw(t, "maySleep")
		for m := range models {
			if rapid.IntRange(0, 9).Draw(t, "has") > 0 {
				k.Places = append(k.Places, warm.Place{Model: m, Seconds: float64(rapid.IntRange(1, 20).Draw(t, "seconds"))})
			}
		}
		w.z.Workers = append(w.z.Workers, k)
	}
	return w
}

// step lets a second pass.
func (w *world) step(fails bool) {
	w.now = w.now.Add(time.Second)
	for m := range w.z.Models {
		if w.z.Models[m].Waiting > 0 {
			w.z.Models[m].Oldest += time.Second
		}
	}
	w.finish(fails)
	before := w.copy()
	acts := warm.Decide(w.c, &w.z, w.now, nil)
	w.judge(before, acts)
	for _, a := range acts {
		w.done[key(a)] = w.now.Add(time.Duration(rapid.IntRange(1, 10).Draw(w.t, "takes")) * time.Second)
	}
	w.log = append(w.log, acts...)
	w.serve()
}

func key(a warm.Action) string { return fmt.Sprint(a.Worker, "/", a.Place) }

// finish ends what is due.
func (w *world) finish(fails bool) {
	for i := range w.z.Workers {
		k := &w.z.Workers[i]
		if at, ok := w.done[key(warm.Action{Worker: i, Place: -1})]; ok && !w.now.Before(at) {
			delete(w.done, key(warm.Action{Worker: i, Place: -1}))
			k.Asleep = k.Nap == warm.Unloading
			k.Nap, k.NapSince = warm.Loaded, w.now
			for j := range k.Places {
				k.Places[j].Since = w.now
			}
		}
		for j := range k.Places {
			p := &k.Places[j]
			at, ok := w.done[key(warm.Action{Worker: i, Place: j})]
			if !ok || w.now.Before(at) {
				continue
			}
			delete(w.done, key(warm.Action{Worker: i, Place: j}))
			switch {
			case p.State == warm.Unloading:
				p.State = warm.Loadable
			case fails && rapid.IntRange(0, 2).Draw(w.t, "fails") == 0:
				p.Failed++
				p.State, p.Retry = warm.Loadable, w.now.Add(w.c.After(p.Failed))
			default:
				p.State, p.Failed = warm.Loaded, 0
			}
			p.Since = w.now
		}
	}
}

// serve answers who waits where a model is ready; answers take a second.
func (w *world) serve() {
	for i := range w.z.Workers {
		for j := range w.z.Workers[i].Places {
			p := &w.z.Workers[i].Places[j]
			p.Open = 0
			if m := &w.z.Models[p.Model]; p.State == warm.Loaded && up(&w.z.Workers[i]) && m.Waiting > 0 {
				p.Open, p.Used = m.Waiting, w.now
				m.Waiting, m.Oldest = 0, 0
			}
		}
	}
}

func up(k *warm.Worker) bool { return k.Up && !k.Asleep && k.Nap != warm.Unloading }

func (w *world) ready(z *warm.Zone, m int) (n int) {
	for i := range z.Workers {
		for _, p := range z.Workers[i].Places {
			if p.Model == m && p.State == warm.Loaded && up(&z.Workers[i]) {
				n++
			}
		}
	}
	return n
}

func (w *world) copy() warm.Zone {
	z := warm.Zone{Models: append([]warm.Model(nil), w.z.Models...), Workers: append([]warm.Worker(nil), w.z.Workers...)}
	for i := range z.Workers {
		z.Workers[i].Places = append([]warm.Place(nil), z.Workers[i].Places...)
	}
	return z
}

// judge holds every action against the rules.
func (w *world) judge(before warm.Zone, acts []warm.Action) {
	loads := 0
	for i := range w.z.Workers {
		k, held, mine := &w.z.Workers[i], 0, 0
		if k.Nap == warm.Loading {
			mine++
		}
		for _, p := range k.Places {
			if p.State == warm.Loading {
				mine++
			}
			if p.State != warm.Loadable {
				held++
			}
		}
		if loads += mine; mine > w.c.PerWorker {
			w.t.Fatalf("worker %d runs %d loads, at most %d", i, mine, w.c.PerWorker)
		}
		if k.Max > 0 && held > k.Max {
			w.t.Fatalf("worker %d holds %d models, at most %d", i, held, k.Max)
		}
	}
	if loads > w.c.PerZone {
		w.t.Fatalf("%d loads in the zone, at most %d", loads, w.c.PerZone)
	}
	for _, a := range acts {
		k := before.Workers[a.Worker]
		var gone []warm.Place
		switch a.Kind {
		case warm.Unload:
			gone = k.Places[a.Place : a.Place+1]
		case warm.Sleep:
			for _, p := range k.Places {
				if p.State == warm.Loaded {
					gone = append(gone, p)
				}
			}
		}
		for _, p := range gone {
			m := before.Models[p.Model]
			if p.Open > 0 || m.Waiting > 0 {
				w.t.Fatalf("a model in use is let go: %+v %+v", p, m)
			}
			if w.now.Sub(p.Since) < w.c.Stay {
				w.t.Fatalf("a model is let go %v after it was loaded", w.now.Sub(p.Since))
			}
			if n := w.ready(&w.z, p.Model); n < m.Floor && n < w.ready(&before, p.Model) {
				w.t.Fatalf("%d replicas are left of a floor of %d", n, m.Floor)
			}
		}
	}
}

func TestRulesHoldWhateverIsAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, true)
		for range 120 {
			if m := rapid.IntRange(0, 3*len(w.z.Models)).Draw(t, "asks"); m < len(w.z.Models) {
				w.z.Models[m].Waiting++
			}
			if i := rapid.IntRange(0, 60).Draw(t, "flips"); i < len(w.z.Workers) {
				w.z.Workers[i].Up = !w.z.Workers[i].Up
			}
			w.step(true)
		}
	})
}

// TestWhoeverWaitsIsServed: once nothing new is asked for, every model that somebody waits for is loaded, if a worker
// can have it.
func TestWhoeverWaitsIsServed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, false)
		for range 30 {
			if m := rapid.IntRange(0, 2*len(w.z.Models)).Draw(t, "asks"); m < len(w.z.Models) {
				w.z.Models[m].Waiting++
			}
			w.step(true)
		}
		// Each load takes 10 s, after at most MaxBackoff of failures and Stay for whoever is in its place.
		for range 400 + 60*len(w.z.Models) {
			w.step(false)
		}
		for m := range w.z.Models {
			for i := range w.z.Workers {
				for _, p := range w.z.Workers[i].Places {
					if p.Model == m && w.z.Models[m].Waiting > 0 && (!w.z.Workers[i].Asleep || w.z.Workers[i].MayWake) {
						t.Fatalf("model %d still waits, and worker %d could have it: %+v", m, i, w.z)
					}
				}
			}
		}
	})
}

// TestFloorsAreReached: what the workers have room for is warm in the end, and then nothing moves any more.
func TestFloorsAreReached(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, true)
		for i := range w.z.Workers {
			w.z.Workers[i].Max = 0
		}
		for range 200 {
			w.step(false)
		}
		n := len(w.log)
		for m := range w.z.Models {
			have := 0
			for i := range w.z.Workers {
				for _, p := range w.z.Workers[i].Places {
					if p.Model == m {
						have++
					}
				}
			}
			if r := w.ready(&w.z, m); r < min(w.z.Models[m].Floor, have) {
				t.Fatalf("model %d has %d of %d warm replicas, and %d workers could have it", m, r, w.z.Models[m].Floor, have)
			}
		}
		for range 100 {
			w.step(false)
		}
		if len(w.log) != n {
			t.Fatalf("a zone without demand still moves: %v", w.log[n:])
		}
	})
}
