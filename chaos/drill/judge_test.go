package drill

import (
	"strings"
	"testing"
	"time"
)

// faultEvents are the events of a controller that injected a step, cleared it and verified that.
func faultEvents() []Event {
	return []Event{
		{At: 50 * second, Kind: FaultInjected, Text: "region_dead", Target: "frankfurt"},
		{At: 80 * second, Kind: FaultCleared, Text: "region_dead", Target: "frankfurt"},
		{At: 81 * second, Kind: FaultVerified, Text: "the processes run"},
	}
}

// quietMachine are timers that are late by a millisecond.
func quietMachine(late float64) (out []Event) {
	for at := time.Duration(0); at < 150*second; at += second {
		out = append(out, Event{At: at, Kind: MachineLate, Value: late})
	}
	return out
}

// TestOutcomesAreKeptApart: hypothesis, clearing, machine and interruption each have an outcome of their own, and a busy machine
// never passes.
func TestOutcomesAreKeptApart(t *testing.T) {
	load := steadyLoad(150 * second)
	refuse := changed(load, func(e *Event) {
		if e.Kind == RequestEnded && e.Request%5 == 0 && e.At > 52*second && e.At < 80*second {
			e.Text, e.Code, e.Good = "refused", "no_capacity", false
		}
	})
	join := func(lists ...[]Event) (out []Event) {
		for _, l := range lists {
			out = append(out, l...)
		}
		return out
	}
	injected := faultEvents()
	remains := []Event{injected[0], injected[1], {At: 82 * second, Kind: FaultRemains, Text: "the process is stopped"}}
	for _, c := range []struct {
		name   string
		events []Event
		want   Outcome
		why    string
	}{
		{"all holds", join(load, injected, quietMachine(.001)), Passed, "every statement"},
		{"requests are refused", join(refuse, injected, quietMachine(.001)), FailedHypothesis, "harmed <= 1 % of requests due: 11 of"},
		{"the fault remains", join(load, remains, quietMachine(.001)), FailedClearing, "it remains: the process is stopped"},
		{"the controller died", join(load, injected[:1], quietMachine(.001)), FailedClearing, "never cleared by the controller"},
		{"the machine was busy", join(load, injected, quietMachine(.2)), Void, "p99 200.0 ms"},
		{"the machine was busy and requests are refused", join(refuse, injected, quietMachine(.2)), Void, "p99 200.0 ms"},
		{"no timer was measured", join(load, injected), Void, "no timer"},
		{"it was stopped", join(load, injected, quietMachine(.001), []Event{{At: 60 * second, Kind: RunStopped, Text: "by an operator"}}), Interrupted, "by an operator"},
		{"it was stopped and the fault remains", join(load, remains, quietMachine(.001), []Event{{At: 60 * second, Kind: RunStopped, Text: "by an operator"}}), FailedClearing, "it remains"},
		{"a stop rule ended it", join(load, injected, quietMachine(.001), []Event{{At: 60 * second, Kind: RunStopped, Text: "stop rule", Code: byStopRule}}), Interrupted, "stop rule"},
		{"a stop rule ended it on a busy machine", join(load, injected, quietMachine(.2), []Event{{At: 60 * second, Kind: RunStopped, Text: "stop rule", Code: byStopRule}}), Void, "p99 200.0 ms"},
		{"nothing was injected", join(load, quietMachine(.001)), Interrupted, "only 0 of 1 steps"},
	} {
		l := makeLog(c.events...)
		l.Header.Observes = append(l.Header.Observes, MachineLate)
		v := Judge(testDrill(), l)
		if v.Outcome != c.want || !strings.Contains(v.Why, c.why) {
			t.Errorf("%s: %s (%s), want %s (%s)", c.name, v.Outcome, v.Why, c.want, c.why)
		}
	}
}

// TestHarmedRequestsAreNamed: requests without a complete answer are listed by id, with refused ones in the denominator, and one that
// began before the fault counts if it ended in it.
func TestHarmedRequestsAreNamed(t *testing.T) {
	load := steadyLoad(150 * second)
	for i := range load {
		if e := &load[i]; e.Kind == RequestEnded && (e.Request == 99 || e.Request == 121) {
			e.Text, e.Good = "cut", false
			if e.Request == 99 { // due at 49 s
				e.At = 51 * second
			}
		}
	}
	v := Judge(testDrill(), makeLog(append(load, faultEvents()...)...))
	if len(v.Harmed) != 2 || v.Harmed[0].ID != 99 || v.Harmed[1].ID != 121 || v.Due != 201 {
		t.Errorf("harmed %+v of %d due, want 99 and 121 of 201", v.Harmed, v.Due)
	}
}

// TestLadderFromOutside: each rung is measured from the fault, and the last node decides when DNS is right.
func TestLadderFromOutside(t *testing.T) {
	answer := func(at time.Duration, node, region string, epoch uint64) Event {
		return Event{At: at, Kind: DNSAnswered, Node: node, Text: "frankfurt", Target: region, Number: epoch}
	}
	events := append(steadyLoad(150*second), faultEvents()...)
	events = append(
		events,
		Event{At: 40 * second, Kind: PlanApplied, Node: "g1", Number: 7, Text: "a"}, Event{At: 53 * second, Kind: PlanApplied, Node: "g2", Number: 8, Text: "b"},
		Event{At: 51 * second, Kind: RegionState, Node: "g3", Target: "frankfurt", Text: "stale"}, Event{At: 52 * second, Kind: RegionState, Node: "g1", Target: "frankfurt", Text: "dead"},
		Event{At: 10 * second, Kind: LeaderChanged, Node: "g2"}, Event{At: 51 * second, Kind: LeaderChanged}, Event{At: 52 * second, Kind: LeaderChanged, Node: "g1"},
		answer(49*second, "g1", "frankfurt", 7), answer(49*second, "g2", "frankfurt", 7), answer(51*second, "g2", "frankfurt", 7), answer(52*second, "g1", "tokyo", 7), answer(53*second, "g2", "tokyo", 8),
		Event{At: 30 * second, Kind: ResolverAnswered, Node: "keeps TTLs frankfurt", Text: "frankfurt", Target: "frankfurt"}, Event{At: 55 * second, Kind: ResolverAnswered, Node: "keeps TTLs frankfurt", Text: "frankfurt", Target: "tokyo"},
		Event{At: 30 * second, Kind: ResolverAnswered, Node: "holds answers", Text: "frankfurt", Target: "frankfurt"},
	)
	l := makeLog(events...)
	l.Header.Observes = append(l.Header.Observes, RegionState, ResolverAnswered, LeaderChanged)
	got := BuildLadder(testDrill(), l)
	for name, want := range map[string]float64{RungDetected: 1, RungElected: 2, RungDecided: 3, RungFirstNode: 0, RungDNS: 3, RungClients: 5, RungSLO: 0, RungCleared: 31, RungNormal: 0} {
		if r := got.FindRung(name); !r.Reached || r.Seconds != want {
			t.Errorf("%s: %+v, want after %v s", name, *r, want)
		}
	}
	if r := got.FindRung(RungHolders); r.Reached || r.Missing == "" {
		t.Errorf("a resolver that never asked again is at %+v", *r)
	}
	if len(got.Observers) != 3 || got.Observers[0].Node != "g3" || got.Observers[1].Node != "Raft" || got.Observers[2].Seconds != 2 {
		t.Errorf("observers %+v, want g3 and Raft after 1 s and g1 after 2 s", got.Observers)
	}
}
