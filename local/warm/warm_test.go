package warm_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/warm"
)

var now = time.Unix(2_000_000, 0)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func TestDecide(t *testing.T) {
	old := ago(time.Hour)
	for _, c := range []struct {
		name string
		z    warm.Zone
		want []warm.Action
	}{
		{"who waits is loaded once, where it is soonest", warm.Zone{
			Models:  []warm.Model{{Waiting: 20}},
			Workers: []warm.Worker{{Up: true, Places: []warm.Place{{Seconds: 9}}}, {Up: true, Places: []warm.Place{{Seconds: 3}}}},
		}, []warm.Action{{warm.Load, 1, 0}}},
		{"what is being loaded is not loaded again", warm.Zone{
			Models:  []warm.Model{{Waiting: 20}},
			Workers: []warm.Worker{{Up: true, Places: []warm.Place{{}}}, {Up: true, Places: []warm.Place{{State: warm.Loading, Since: ago(time.Second)}}}},
		}, nil},
		{"the model that was used the longest ago goes first", warm.Zone{
			Models: []warm.Model{{Waiting: 1}, {}, {}},
			Workers: []warm.Worker{{Up: true, Max: 2, Places: []warm.Place{
				{Model: 0}, {Model: 1, State: warm.Loaded, Since: old, Used: ago(time.Minute)}, {Model: 2, State: warm.Loaded, Since: old, Used: ago(2 * time.Minute)},
			}}},
		}, []warm.Action{{warm.Unload, 0, 2}}},
		{"room elsewhere is better than somebody's place", warm.Zone{
			Models: []warm.Model{{Waiting: 1}, {}},
			Workers: []warm.Worker{
				{Up: true, Max: 1, Places: []warm.Place{{Model: 0, Seconds: 1}, {Model: 1, State: warm.Loaded, Since: old}}},
				{Up: true, Max: 1, Places: []warm.Place{{Model: 0, Seconds: 60}}},
			},
		}, []warm.Action{{warm.Load, 1, 0}}},
		{"a worker that failed is left alone, the next one is tried", warm.Zone{
			Models:  []warm.Model{{Waiting: 1}},
			Workers: []warm.Worker{{Up: true, Places: []warm.Place{{Failed: 1, Retry: now.Add(time.Second)}}}, {Up: true, Places: []warm.Place{{Seconds: 60}}}},
		}, []warm.Action{{warm.Load, 1, 0}}},
		{"a sleeping worker is woken if it may be", warm.Zone{
			Models: []warm.Model{{Waiting: 1}},
			Workers: []warm.Worker{
				{Up: true, Asleep: true, Places: []warm.Place{{State: warm.Loaded}}},
				{Up: true, Asleep: true, MayWake: true, WakeSeconds: 3, Places: []warm.Place{{State: warm.Loaded}}},
			},
		}, []warm.Action{{warm.Wake, 1, -1}}},
		{"an idle worker is put to sleep", warm.Zone{
			Models:  []warm.Model{{Idle: time.Minute}},
			Workers: []warm.Worker{{Up: true, MaySleep: true, Places: []warm.Place{{State: warm.Loaded, Fixed: true, Since: old, Used: ago(time.Minute)}}}},
		}, []warm.Action{{warm.Sleep, 0, -1}}},
		{"the floor stays", warm.Zone{
			Models:  []warm.Model{{Idle: time.Minute, Floor: 1}},
			Workers: []warm.Worker{{Up: true, Places: []warm.Place{{State: warm.Loaded, Since: old}}}, {Up: true, Places: []warm.Place{{State: warm.Loaded, Since: old}}}},
		}, []warm.Action{{warm.Unload, 0, 0}}},
		{"a busy model gets another replica when that is sooner than waiting", warm.Zone{
			Models:  []warm.Model{{Waiting: 9, Wait: 30}, {Waiting: 9, Wait: 5}},
			Workers: []warm.Worker{{Up: true, Places: []warm.Place{{State: warm.Loaded}, {Model: 1, State: warm.Loaded}}}, {Up: true, Places: []warm.Place{{Seconds: 10}, {Model: 1, Seconds: 10}}}},
		}, []warm.Action{{warm.Load, 1, 0}}},
	} {
		if got := warm.Decide(warm.Config{}, &c.z, now, nil); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestLook(t *testing.T) {
	place := func(p warm.Place) warm.Zone {
		return warm.Zone{Models: []warm.Model{{}, {Waiting: 1}}, Workers: []warm.Worker{{Up: true, Max: 1, Places: []warm.Place{p, {Model: 1}}}}}
	}
	full := place(warm.Place{Seconds: 7})
	full.Workers[0].Places[1] = warm.Place{Model: 1, State: warm.Loaded, Open: 1}
	for _, c := range []struct {
		name string
		z    warm.Zone
		want warm.Outlook
	}{
		{"cold", place(warm.Place{Seconds: 7}), warm.Outlook{Hope: warm.Possible, Wait: 7 * time.Second}},
		{"loading", place(warm.Place{State: warm.Loading, Seconds: 7, Since: ago(3 * time.Second)}), warm.Outlook{Hope: warm.Coming, Wait: 4 * time.Second}},
		{"late", place(warm.Place{State: warm.Loading, Seconds: 10, Since: ago(time.Minute)}), warm.Outlook{Hope: warm.Coming, Wait: time.Second}},
		{"failed", place(warm.Place{Failed: 2, Retry: now.Add(9 * time.Second)}), warm.Outlook{Hope: warm.Failed, Wait: 9 * time.Second}},
		{"full", full, warm.Outlook{Hope: warm.Full, Wait: 7 * time.Second}},
		{"nowhere", warm.Zone{Models: []warm.Model{{}}}, warm.Outlook{}},
	} {
		if got := warm.Look(warm.Config{}, &c.z, 0, now); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestBackoffDoubles(t *testing.T) {
	c := warm.Config{Backoff: time.Second, MaxBackoff: 5 * time.Second}
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 4: 5 * time.Second, 1000: 5 * time.Second} {
		if got := c.After(n); got != want {
			t.Errorf("after %d: %v, want %v", n, got, want)
		}
	}
}
