package modelload_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/modelload"
)

var testNow = time.Unix(2_000_000, 0)

func timeBefore(d time.Duration) time.Time { return testNow.Add(-d) }

func TestPlanActions(t *testing.T) {
	old := timeBefore(time.Hour)
	for _, c := range []struct {
		name string
		z    modelload.PlacementState
		want []modelload.LoadAction
	}{
		{"who waits is loaded once, where it is soonest", modelload.PlacementState{
			Models:  []modelload.ModelDemand{{Waiting: 20}},
			Workers: []modelload.WorkerSlots{{Up: true, Slots: []modelload.ModelSlot{{LoadSeconds: 9}}}, {Up: true, Slots: []modelload.ModelSlot{{LoadSeconds: 3}}}},
		}, []modelload.LoadAction{{modelload.ActionLoad, 1, 0}}},
		{"what is being loaded is not loaded again", modelload.PlacementState{
			Models:  []modelload.ModelDemand{{Waiting: 20}},
			Workers: []modelload.WorkerSlots{{Up: true, Slots: []modelload.ModelSlot{{}}}, {Up: true, Slots: []modelload.ModelSlot{{State: modelload.StateLoading, Since: timeBefore(time.Second)}}}},
		}, nil},
		{"the model that was used the longest ago goes first", modelload.PlacementState{
			Models: []modelload.ModelDemand{{Waiting: 1}, {}, {}},
			Workers: []modelload.WorkerSlots{{Up: true, MaxModels: 2, Slots: []modelload.ModelSlot{
				{Model: 0}, {Model: 1, State: modelload.StateLoaded, Since: old, UsedAt: timeBefore(time.Minute)}, {Model: 2, State: modelload.StateLoaded, Since: old, UsedAt: timeBefore(2 * time.Minute)},
			}}},
		}, []modelload.LoadAction{{modelload.ActionUnload, 0, 2}}},
		{"room elsewhere is better than somebody's place", modelload.PlacementState{
			Models: []modelload.ModelDemand{{Waiting: 1}, {}},
			Workers: []modelload.WorkerSlots{
				{Up: true, MaxModels: 1, Slots: []modelload.ModelSlot{{Model: 0, LoadSeconds: 1}, {Model: 1, State: modelload.StateLoaded, Since: old}}},
				{Up: true, MaxModels: 1, Slots: []modelload.ModelSlot{{Model: 0, LoadSeconds: 60}}},
			},
		}, []modelload.LoadAction{{modelload.ActionLoad, 1, 0}}},
		{"a worker that failed is left alone, the next one is tried", modelload.PlacementState{
			Models:  []modelload.ModelDemand{{Waiting: 1}},
			Workers: []modelload.WorkerSlots{{Up: true, Slots: []modelload.ModelSlot{{FailedLoads: 1, RetryAt: testNow.Add(time.Second)}}}, {Up: true, Slots: []modelload.ModelSlot{{LoadSeconds: 60}}}},
		}, []modelload.LoadAction{{modelload.ActionLoad, 1, 0}}},
		{"a sleeping worker is woken if it may be", modelload.PlacementState{
			Models: []modelload.ModelDemand{{Waiting: 1}},
			Workers: []modelload.WorkerSlots{
				{Up: true, Asleep: true, Slots: []modelload.ModelSlot{{State: modelload.StateLoaded}}},
				{Up: true, Asleep: true, MayWake: true, WakeSeconds: 3, Slots: []modelload.ModelSlot{{State: modelload.StateLoaded}}},
			},
		}, []modelload.LoadAction{{modelload.ActionWake, 1, -1}}},
		{"an idle worker is put to sleep", modelload.PlacementState{
			Models:  []modelload.ModelDemand{{IdleTimeout: time.Minute}},
			Workers: []modelload.WorkerSlots{{Up: true, MaySleep: true, Slots: []modelload.ModelSlot{{State: modelload.StateLoaded, Pinned: true, Since: old, UsedAt: timeBefore(time.Minute)}}}},
		}, []modelload.LoadAction{{modelload.ActionSleep, 0, -1}}},
		{"the floor stays", modelload.PlacementState{
			Models:  []modelload.ModelDemand{{IdleTimeout: time.Minute, MinReady: 1}},
			Workers: []modelload.WorkerSlots{{Up: true, Slots: []modelload.ModelSlot{{State: modelload.StateLoaded, Since: old}}}, {Up: true, Slots: []modelload.ModelSlot{{State: modelload.StateLoaded, Since: old}}}},
		}, []modelload.LoadAction{{modelload.ActionUnload, 0, 0}}},
		{"a busy model gets another replica when that is sooner than waiting", modelload.PlacementState{
			Models:  []modelload.ModelDemand{{Waiting: 9, PredictedWait: 30}, {Waiting: 9, PredictedWait: 5}},
			Workers: []modelload.WorkerSlots{{Up: true, Slots: []modelload.ModelSlot{{State: modelload.StateLoaded}, {Model: 1, State: modelload.StateLoaded}}}, {Up: true, Slots: []modelload.ModelSlot{{LoadSeconds: 10}, {Model: 1, LoadSeconds: 10}}}},
		}, []modelload.LoadAction{{modelload.ActionLoad, 1, 0}}},
	} {
		if got := modelload.PlanActions(modelload.Config{}, &c.z, testNow, nil); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestForecastAvailability(t *testing.T) {
	place := func(p modelload.ModelSlot) modelload.PlacementState {
		return modelload.PlacementState{Models: []modelload.ModelDemand{{}, {Waiting: 1}}, Workers: []modelload.WorkerSlots{{Up: true, MaxModels: 1, Slots: []modelload.ModelSlot{p, {Model: 1}}}}}
	}
	full := place(modelload.ModelSlot{LoadSeconds: 7})
	full.Workers[0].Slots[1] = modelload.ModelSlot{Model: 1, State: modelload.StateLoaded, OpenRequests: 1}
	for _, c := range []struct {
		name string
		z    modelload.PlacementState
		want modelload.AvailabilityForecast
	}{
		{"cold", place(modelload.ModelSlot{LoadSeconds: 7}), modelload.AvailabilityForecast{Availability: modelload.AvailabilityLoadable, Wait: 7 * time.Second}},
		{"loading", place(modelload.ModelSlot{State: modelload.StateLoading, LoadSeconds: 7, Since: timeBefore(3 * time.Second)}), modelload.AvailabilityForecast{Availability: modelload.AvailabilityLoading, Wait: 4 * time.Second}},
		{"late", place(modelload.ModelSlot{State: modelload.StateLoading, LoadSeconds: 10, Since: timeBefore(time.Minute)}), modelload.AvailabilityForecast{Availability: modelload.AvailabilityLoading, Wait: time.Second}},
		{"failed", place(modelload.ModelSlot{FailedLoads: 2, RetryAt: testNow.Add(9 * time.Second)}), modelload.AvailabilityForecast{Availability: modelload.AvailabilityFailed, Wait: 9 * time.Second}},
		{"full", full, modelload.AvailabilityForecast{Availability: modelload.AvailabilityFull, Wait: 7 * time.Second}},
		{"nowhere", modelload.PlacementState{Models: []modelload.ModelDemand{{}}}, modelload.AvailabilityForecast{}},
	} {
		if got := modelload.ForecastAvailability(modelload.Config{}, &c.z, 0, testNow); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestBackoffDoubles(t *testing.T) {
	c := modelload.Config{Backoff: time.Second, MaxBackoff: 5 * time.Second}
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 4: 5 * time.Second, 1000: 5 * time.Second} {
		if got := c.BackoffAfter(n); got != want {
			t.Errorf("after %d: %v, want %v", n, got, want)
		}
	}
}
