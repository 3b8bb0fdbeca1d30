package modelload_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/local/modelload"
)

// zoneModel simulates the zone: it carries out actions, which take time and may fail.
type zoneModel struct {
	rapidT      *rapid.T
	config      modelload.Config
	state       modelload.PlacementState
	now         time.Time
	finishTimes map[string]time.Time // when actions under way end
	actionLog   []modelload.LoadAction
}

var testStart = time.Unix(1_000_000, 0)

func newZoneModel(t *rapid.T, floors bool) *zoneModel {
	w := &zoneModel{rapidT: t, now: testStart, finishTimes: map[string]time.Time{}, config: modelload.Config{
		PerWorker: rapid.IntRange(1, 2).Draw(t, "perWorker"), PerZone: rapid.IntRange(1, 4).Draw(t, "perZone"),
	}.WithDefaults()}
	models := rapid.IntRange(1, 6).Draw(t, "models")
	workers := rapid.IntRange(1, 4).Draw(t, "workers")
	for range models {
		m := modelload.ModelDemand{IdleTimeout: time.Duration(rapid.IntRange(0, 60).Draw(t, "idle")) * time.Second}
		if floors {
			m.MinReady = rapid.IntRange(0, 2).Draw(t, "floor")
		}
		w.state.Models = append(w.state.Models, m)
	}
	for range workers {
		k := modelload.WorkerSlots{Up: true, MaxModels: rapid.IntRange(0, 3).Draw(t, "max"), FreeKV: 0.5, WakeSeconds: 2}
		k.MayWake = rapid.Bool().Draw(t, "mayWake")
		k.MaySleep = k.MayWake && rapid.Bool().Draw(t, "maySleep")
		for m := range models {
			if rapid.IntRange(0, 9).Draw(t, "has") > 0 {
				k.Slots = append(k.Slots, modelload.ModelSlot{Model: m, LoadSeconds: float64(rapid.IntRange(1, 20).Draw(t, "seconds"))})
			}
		}
		w.state.Workers = append(w.state.Workers, k)
	}
	return w
}

// stepSecond advances the clock by one second.
func (w *zoneModel) stepSecond(fails bool) {
	w.now = w.now.Add(time.Second)
	for m := range w.state.Models {
		if w.state.Models[m].Waiting > 0 {
			w.state.Models[m].OldestWait += time.Second
		}
	}
	w.finishDueActions(fails)
	before := w.copyState()
	acts := modelload.PlanActions(w.config, &w.state, w.now, nil)
	w.checkActions(before, acts)
	for _, a := range acts {
		w.finishTimes[actionKey(a)] = w.now.Add(time.Duration(rapid.IntRange(1, 10).Draw(w.rapidT, "takes")) * time.Second)
	}
	w.actionLog = append(w.actionLog, acts...)
	w.serveWaiting()
}

func actionKey(a modelload.LoadAction) string { return fmt.Sprint(a.Worker, "/", a.Slot) }

// finishDueActions ends the actions that are due.
func (w *zoneModel) finishDueActions(fails bool) {
	for i := range w.state.Workers {
		k := &w.state.Workers[i]
		if at, ok := w.finishTimes[actionKey(modelload.LoadAction{Worker: i, Slot: -1})]; ok && !w.now.Before(at) {
			delete(w.finishTimes, actionKey(modelload.LoadAction{Worker: i, Slot: -1}))
			k.Asleep = k.SleepState == modelload.StateUnloading
			k.SleepState, k.SleepSince = modelload.StateLoaded, w.now
			for j := range k.Slots {
				k.Slots[j].Since = w.now
			}
		}
		for j := range k.Slots {
			p := &k.Slots[j]
			at, ok := w.finishTimes[actionKey(modelload.LoadAction{Worker: i, Slot: j})]
			if !ok || w.now.Before(at) {
				continue
			}
			delete(w.finishTimes, actionKey(modelload.LoadAction{Worker: i, Slot: j}))
			switch {
			case p.State == modelload.StateUnloading:
				p.State = modelload.StateLoadable
			case fails && rapid.IntRange(0, 2).Draw(w.rapidT, "fails") == 0:
				p.FailedLoads++
				p.State, p.RetryAt = modelload.StateLoadable, w.now.Add(w.config.BackoffAfter(p.FailedLoads))
			default:
				p.State, p.FailedLoads = modelload.StateLoaded, 0
			}
			p.Since = w.now
		}
	}
}

// serveWaiting serves waiting requests where their model is ready; answers take a second.
func (w *zoneModel) serveWaiting() {
	for i := range w.state.Workers {
		for j := range w.state.Workers[i].Slots {
			p := &w.state.Workers[i].Slots[j]
			p.OpenRequests = 0
			if m := &w.state.Models[p.Model]; p.State == modelload.StateLoaded && isUp(&w.state.Workers[i]) && m.Waiting > 0 {
				p.OpenRequests, p.UsedAt = m.Waiting, w.now
				m.Waiting, m.OldestWait = 0, 0
			}
		}
	}
}

func isUp(k *modelload.WorkerSlots) bool {
	return k.Up && !k.Asleep && k.SleepState != modelload.StateUnloading
}

func (w *zoneModel) countReady(z *modelload.PlacementState, m int) (n int) {
	for i := range z.Workers {
		for _, p := range z.Workers[i].Slots {
			if p.Model == m && p.State == modelload.StateLoaded && isUp(&z.Workers[i]) {
				n++
			}
		}
	}
	return n
}

func (w *zoneModel) copyState() modelload.PlacementState {
	z := modelload.PlacementState{Models: append([]modelload.ModelDemand(nil), w.state.Models...), Workers: append([]modelload.WorkerSlots(nil), w.state.Workers...)}
	for i := range z.Workers {
		z.Workers[i].Slots = append([]modelload.ModelSlot(nil), z.Workers[i].Slots...)
	}
	return z
}

// checkActions checks every action against the rules.
func (w *zoneModel) checkActions(before modelload.PlacementState, acts []modelload.LoadAction) {
	loads := 0
	for i := range w.state.Workers {
		k, held, mine := &w.state.Workers[i], 0, 0
		if k.SleepState == modelload.StateLoading {
			mine++
		}
		for _, p := range k.Slots {
			if p.State == modelload.StateLoading {
				mine++
			}
			if p.State != modelload.StateLoadable {
				held++
			}
		}
		if loads += mine; mine > w.config.PerWorker {
			w.rapidT.Fatalf("worker %d runs %d loads, at most %d", i, mine, w.config.PerWorker)
		}
		if k.MaxModels > 0 && held > k.MaxModels {
			w.rapidT.Fatalf("worker %d holds %d models, at most %d", i, held, k.MaxModels)
		}
	}
	if loads > w.config.PerZone {
		w.rapidT.Fatalf("%d loads in the zone, at most %d", loads, w.config.PerZone)
	}
	for _, a := range acts {
		k := before.Workers[a.Worker]
		var gone []modelload.ModelSlot
		switch a.Kind {
		case modelload.ActionUnload:
			gone = k.Slots[a.Slot : a.Slot+1]
		case modelload.ActionSleep:
			for _, p := range k.Slots {
				if p.State == modelload.StateLoaded {
					gone = append(gone, p)
				}
			}
		}
		for _, p := range gone {
			m := before.Models[p.Model]
			if p.OpenRequests > 0 || m.Waiting > 0 {
				w.rapidT.Fatalf("a model in use is unloaded: %+v %+v", p, m)
			}
			if w.now.Sub(p.Since) < w.config.MinResidency {
				w.rapidT.Fatalf("a model is unloaded %v after it was loaded", w.now.Sub(p.Since))
			}
			if n := w.countReady(&w.state, p.Model); n < m.MinReady && n < w.countReady(&before, p.Model) {
				w.rapidT.Fatalf("%d replicas are left of a minimum of %d", n, m.MinReady)
			}
		}
	}
}

func TestPlanNeverBreaksLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newZoneModel(t, true)
		for range 120 {
			if m := rapid.IntRange(0, 3*len(w.state.Models)).Draw(t, "asks"); m < len(w.state.Models) {
				w.state.Models[m].Waiting++
			}
			if i := rapid.IntRange(0, 60).Draw(t, "flips"); i < len(w.state.Workers) {
				w.state.Workers[i].Up = !w.state.Workers[i].Up
			}
			w.stepSecond(true)
		}
	})
}

// TestWaitingRequestsAreServed: once no new requests arrive, every model that requests wait for is loaded, if a worker can
// have it.
func TestWaitingRequestsAreServed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newZoneModel(t, false)
		for range 30 {
			if m := rapid.IntRange(0, 2*len(w.state.Models)).Draw(t, "asks"); m < len(w.state.Models) {
				w.state.Models[m].Waiting++
			}
			w.stepSecond(true)
		}
		// Each load takes 10 s, after at most MaxBackoff of failures and MinResidency of the model in its slot.
		for range 400 + 60*len(w.state.Models) {
			w.stepSecond(false)
		}
		for m := range w.state.Models {
			for i := range w.state.Workers {
				for _, p := range w.state.Workers[i].Slots {
					if p.Model == m && w.state.Models[m].Waiting > 0 && (!w.state.Workers[i].Asleep || w.state.Workers[i].MayWake) {
						t.Fatalf("model %d still waits, and worker %d could have it: %+v", m, i, w.state)
					}
				}
			}
		}
	})
}

// TestMinReadyIsReached: in the end every model that fits has its minimum of replicas, and then no more actions are planned.
func TestMinReadyIsReached(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newZoneModel(t, true)
		for i := range w.state.Workers {
			w.state.Workers[i].MaxModels = 0
		}
		for range 200 {
			w.stepSecond(false)
		}
		n := len(w.actionLog)
		for m := range w.state.Models {
			have := 0
			for i := range w.state.Workers {
				for _, p := range w.state.Workers[i].Slots {
					if p.Model == m {
						have++
					}
				}
			}
			if r := w.countReady(&w.state, m); r < min(w.state.Models[m].MinReady, have) {
				t.Fatalf("model %d has %d of %d warm replicas, and %d workers could have it", m, r, w.state.Models[m].MinReady, have)
			}
		}
		for range 100 {
			w.stepSecond(false)
		}
		if len(w.actionLog) != n {
			t.Fatalf("a zone without demand still has actions: %v", w.actionLog[n:])
		}
	})
}
