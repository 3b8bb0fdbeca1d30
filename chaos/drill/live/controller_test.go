package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/chaos/fault"
	"github.com/spillway-lb/spillway/chaos/fleet"
)

// fakePlace is an injured place in memory. A lease ends by itself, as everywhere.
type fakePlace struct {
	mu      sync.Mutex
	calls   []string
	until   map[string]time.Time
	stuck   bool // a cleared fault remains
	refuses bool // nothing can be injected
}

func (p *fakePlace) note(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, call)
}

func (p *fakePlace) Inject(_ context.Context, s fault.Spec) error {
	p.note("inject")
	if p.refuses {
		return errors.New("no such node")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until[s.ID] = time.Now().Add(s.Lease)
	return nil
}

func (p *fakePlace) Renew(_ context.Context, id string) error {
	p.note("renew")
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().After(p.until[id]) {
		return fmt.Errorf("the lease of %s has ended", id)
	}
	p.until[id] = time.Now().Add(drill.LeaseTime)
	return nil
}

func (p *fakePlace) Clear(_ context.Context, id string) error {
	p.note("clear")
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stuck {
		delete(p.until, id)
	}
	return nil
}

func (p *fakePlace) Verify(_ context.Context, id string) (fault.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := fault.State{Phase: fault.PhaseCleared, Probe: "nothing is injured"}
	if _, ok := p.until[id]; ok {
		s.Phase, s.Probe = fault.PhaseUncleared, "it is still injured"
	}
	return s, nil
}

func (p *fakePlace) List(context.Context) ([]fault.State, error) { return nil, nil }

const liveDrill = `drill fake
title A drill on a place in memory
hypothesis It ends.
load 1 requests/s for 40 s, prompts 100 tokens, answers 5 tokens
at 10 s for 9 s leader_dead
`

// runFake runs the drill on a place in memory, in virtual time, and judges it.
func runFake(t *testing.T, p *fakePlace, ctx context.Context, stop func() string) (*drill.Verdict, *drill.EventLog) {
	t.Helper()
	f, err := drill.ParseFile("fake.txt", []byte(liveDrill))
	if err != nil {
		t.Fatal(err)
	}
	p.until = map[string]time.Time{}
	started := time.Now()
	events := newEventQueue(started)
	events.add(drill.Event{At: time.Second, Kind: drill.RequestDue, Request: 1, Text: "acme", Target: "tokyo"}, drill.Event{At: 2 * time.Second, Kind: drill.RequestEnded, Request: 1, Text: "ok", TTFT: .1, Good: true})
	c := &controller{file: f, config: Config{Dir: t.TempDir(), StopReason: stop}, injector: p, events: events, target: newTarget(&fleet.Files{}), machine: drill.NewMachine(f), started: started}
	c.runSteps(ctx)
	l := &drill.EventLog{Header: drill.LogHeader{Observes: observedKinds}, Events: events.all()}
	l.SortEvents()
	return drill.Judge(f, l), l
}

func neverStop() string { return "" }

// TestControllerKeepsALease: a fault is injected once, renewed while it lasts, cleared and verified.
func TestControllerKeepsALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakePlace{}
		v, _ := runFake(t, p, t.Context(), neverStop)
		if want := []string{"inject", "renew", "renew", "renew", "renew", "clear"}; !slices.Equal(p.calls, want) {
			t.Errorf("calls %q, want %q", p.calls, want)
		}
		if v.Outcome != drill.Passed {
			t.Errorf("%s: %s", v.Outcome, v.Why)
		}
	})
}

// TestControllerEndsWhatItBegan: an operator's stop, an interrupt, a fault that remains and one that cannot be injected each end the run with
// their own outcome, and what was injected is cleared.
func TestControllerEndsWhatItBegan(t *testing.T) {
	for _, c := range []struct {
		name    string
		place   *fakePlace
		stop    func(start time.Time) string
		cancel  time.Duration
		want    drill.Outcome
		cleared bool
	}{
		{"an operator stops it", &fakePlace{}, func(start time.Time) string {
			if time.Since(start) > 12*time.Second {
				return "aborted by an operator: enough"
			}
			return ""
		}, 0, drill.Interrupted, true},
		{"the controller is interrupted", &fakePlace{}, nil, 12 * time.Second, drill.Interrupted, true},
		{"the fault remains", &fakePlace{stuck: true}, nil, 0, drill.FailedClearing, true},
		{"it cannot be injected", &fakePlace{refuses: true}, nil, 0, drill.Interrupted, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel > 0 {
					timer := time.AfterFunc(c.cancel, cancel)
					defer timer.Stop()
				}
				stop := neverStop
				if c.stop != nil {
					stop = func() string { return c.stop(start) }
				}
				v, _ := runFake(t, c.place, ctx, stop)
				if v.Outcome != c.want {
					t.Errorf("%s: %s, want %s", v.Outcome, v.Why, c.want)
				}
				if slices.Contains(c.place.calls, "clear") != c.cleared {
					t.Errorf("calls %q", c.place.calls)
				}
			})
		})
	}
}

// TestLeaderIsWhoSaysSo: the leader changes when another node leads, and there is none when no node does.
func TestLeaderIsWhoSaysSo(t *testing.T) {
	q := newEventQueue(time.Now())
	w := &leaderWatch{events: q}
	w.observe("g2", false, 1)
	w.observe("g1", true, 1)
	w.observe("g2", false, 1)
	w.observe("g1", false, 0)
	w.observe("g2", true, 2)
	w.observe("g1", false, 2)
	var got []string
	for _, e := range q.all() {
		if e.Kind == drill.LeaderChanged {
			got = append(got, e.Node)
		}
	}
	if want := []string{"g1", "", "g2"}; !slices.Equal(got, want) {
		t.Errorf("leaders %q, want %q", got, want)
	}
}

func TestLabelOf(t *testing.T) {
	const sample = `spillway_global_region_up{region="tokyo",state="stale"}`
	if v, ok := labelOf(sample, "spillway_global_region_up", "state"); !ok || v != "stale" {
		t.Errorf("state %q, %v", v, ok)
	}
	if _, ok := labelOf(sample, "spillway_global_region", "state"); ok {
		t.Error("a sample of another metric is read")
	}
}
