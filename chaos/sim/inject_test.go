package sim

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"pgregory.net/rapid"
)

// TestRestartedWorkersLoadTheirModel: they get nothing before they serve, and their full load after; a slower store
// takes longer. No request is lost meanwhile.
func TestRestartedWorkersLoadTheirModel(t *testing.T) {
	const clearedAt = 15 * time.Second
	first := func(store float64) time.Duration {
		s := chatScenario(t, 2, 3, 4)
		s.Duration, s.GracePeriod = 3*time.Minute, time.Minute
		s.Faults = []Fault{{At: 10 * time.Second, For: clearedAt - 10*time.Second, Kind: WorkerDead, Region: "here", Zone: "a", Store: store}}
		var list []PlacementDecision
		s.OnDecision = func(d PlacementDecision) { list = append(list, d) }
		r := runScenario(t, s)
		if r.All.Completed != r.All.Sent {
			t.Errorf("store of %v GB/s: %+v", store, r.All)
		}
		back := decisionsBetween(list, clearedAt, time.Hour)
		i := slices.IndexFunc(back, func(d PlacementDecision) bool { return d.Worker == "w0001" })
		if i < 0 {
			t.Fatalf("store of %v GB/s: nothing is sent to the worker again", store)
		}
		return back[i].At - clearedAt
	}
	at, slow, fast := first(0), first(.3), first(2)
	t.Logf("first used %v after the fault where it is back at once, %v with a fast disk, %v with a slow one", at, fast, slow)
	// Llama-3.1-8B's weights are 16.1 GB: 54 s and 8 s, plus 54 s of the engine's own start, with the same seed in
	// each run.
	if at > 10*time.Second || fast < 30*time.Second || slow < fast+20*time.Second {
		t.Errorf("first used after %v, %v and %v", at, fast, slow)
	}
}

// TestRefusedConnectionsAndCutStreamsHarmNoRequest: a worker that refuses connections gets no requests once that is found, and its running
// streams end by themselves. Streams that it cuts are resumed elsewhere.
func TestRefusedConnectionsAndCutStreamsHarmNoRequest(t *testing.T) {
	run := func(f Fault) (*RunResult, []PlacementDecision) {
		s := chatScenario(t, 2, 3, 4)
		f.At, f.For, f.Region, f.Zone = 10*time.Second, 20*time.Second, "here", "a"
		s.Duration, s.GracePeriod, s.Faults = time.Minute, time.Minute, []Fault{f}
		var list []PlacementDecision
		s.OnDecision = func(d PlacementDecision) { list = append(list, d) }
		r := runScenario(t, s)
		if r.All.Completed != r.All.Sent {
			t.Errorf("%s: %+v", f.Kind, r.All)
		}
		return r, list
	}
	r, list := run(Fault{Kind: WorkerRefuses})
	sent := 0
	for _, d := range decisionsBetween(list, 13*time.Second, 29*time.Second) {
		if d.Worker == "w0001" {
			sent++
		}
	}
	if r.Retried == 0 || r.Resumed != 0 || sent > 0 {
		t.Errorf("connections are refused: %d retried, %d resumed, %d sent there from 3 s on", r.Retried, r.Resumed, sent)
	}
	if r, _ := run(Fault{Kind: WorkerCuts, Share: .5, AfterTokens: 3}); r.Resumed == 0 || r.Retried != 0 {
		t.Errorf("streams are cut: %d resumed, %d retried", r.Resumed, r.Retried)
	}
}

// TestNoLeaderDuringElection: there is no leader for ElectionTime after the leader is lost or has no majority; the
// new leader stays when the first node is back.
func TestNoLeaderDuringElection(t *testing.T) {
	p := &globalTier{scenario: &Scenario{Steering: SteeringConfig{ElectionTime: 2 * time.Second}}, loop: newEventLoop(), faults: &faultStates{}}
	for i, name := range []string{"virginia", "frankfurt", "tokyo"} {
		p.nodes = append(p.nodes, &globalNode{index: int32(i), region: &regionState{index: int32(i), name: name}})
	}
	expect := func(after time.Duration, want int) {
		t.Helper()
		p.loop.now = int64(after)
		got := -1
		if n := p.currentLeader(); n != nil {
			got = int(n.index)
		}
		if got != want {
			t.Errorf("after %v node %d leads, want %d", after, got, want)
		}
	}
	expect(0, 0)
	expect(10*time.Second, 0)
	p.nodes[0].deathCauses++
	expect(11*time.Second, -1)
	expect(12900*time.Millisecond, -1)
	expect(13*time.Second, 1)
	p.nodes[0].deathCauses--
	expect(14*time.Second, 1)
	p.nodes[1].deathCauses++
	p.nodes[2].deathCauses++
	expect(20*time.Second, -1)
	expect(30*time.Second, -1)
	p.nodes[2].deathCauses--
	expect(31*time.Second, -1)
	expect(33*time.Second, 0)
}

// TestDNSAnswersWithoutLeader: without a leader there are no new plans, and resolvers get answers by the last one.
func TestDNSAnswersWithoutLeader(t *testing.T) {
	runs := map[time.Duration]*RunResult{}
	for _, takes := range []time.Duration{0, time.Minute} {
		s := threeRegionScenario(t, 9, .2, .6, .2)
		s.Steering = SteeringConfig{Enabled: true, TTL: 5 * time.Second, ElectionTime: takes}
		s.Duration = 70 * time.Second
		s.Faults = []Fault{{At: 20 * time.Second, Kind: RegionDead, Region: "virginia"}} // with its node, which leads
		runs[takes] = runScenario(t, s)
	}
	at, never := runs[0], runs[time.Minute]
	t.Logf("%d plans and %d queries with a leader at once, %d and %d without one", at.Plans, at.Queries, never.Plans, never.Queries)
	if never.Plans >= at.Plans || never.Queries*10 < at.Queries*9 {
		t.Errorf("%d of %d plans, %d of %d queries", never.Plans, at.Plans, never.Queries, at.Queries)
	}
}

// instancesScenario is one region with one zone of six workers, with the given numbers of instances and gateways.
func instancesScenario(t testing.TB, locals, gateways int) Scenario {
	s := chatScenario(t, 6, 9, 4)
	s.Fleet.Regions[0].Zones[0].Locals, s.Fleet.Regions[0].Gateways = locals, gateways
	s.Fleet.Regions[0].Lat, s.Fleet.Regions[0].Lon, s.AlwaysGateways = 50.1, 8.7, true
	return s
}

// runWithDecisions runs a scenario and returns its decisions.
func runWithDecisions(t *testing.T, s Scenario) (*RunResult, []PlacementDecision) {
	t.Helper()
	var list []PlacementDecision
	s.OnDecision = func(d PlacementDecision) { list = append(list, d) }
	return runScenario(t, s), list
}

// decisionsBetween are the decisions in a time interval.
func decisionsBetween(list []PlacementDecision, from, to time.Duration) []PlacementDecision {
	var out []PlacementDecision
	for _, d := range list {
		if d.At >= from && d.At < to {
			out = append(out, d)
		}
	}
	return out
}

// instancesByWorker are the instances that sent requests to each worker.
func instancesByWorker(list []PlacementDecision) map[string][]string {
	out := map[string][]string{}
	for _, d := range list {
		if w := out[d.Worker]; !slices.Contains(w, d.LocalInstance) {
			out[d.Worker] = append(w, d.LocalInstance)
		}
	}
	return out
}

// TestEachWorkerHasOneInstanceAndFailsOver: each worker is served by one instance. When that dies, others serve its
// workers within two seconds, its streams are resumed, and no client gets an error; when it is back, its workers
// return to it.
func TestEachWorkerHasOneInstanceAndFailsOver(t *testing.T) {
	s := instancesScenario(t, 3, 2)
	s.Faults = []Fault{{At: 20 * time.Second, For: 15 * time.Second, Kind: LocalDead, Region: "here", Zone: "a", Instance: 1}}
	r, list := runWithDecisions(t, s)
	t.Logf("%+v, resumed %d, retried %d", r.All, r.Resumed, r.Retried)
	undisturbed := instancesByWorker(decisionsBetween(list, 5*time.Second, 20*time.Second))
	var dead []string
	for w, by := range undisturbed {
		if len(by) != 1 {
			t.Errorf("%s was served by %v", w, by)
		}
		if by[0] == "here-a2" {
			dead = append(dead, w)
		}
	}
	if len(undisturbed) != 6 || len(dead) == 0 {
		t.Fatalf("before it dies: %v", undisturbed)
	}
	without := instancesByWorker(decisionsBetween(list, 22*time.Second, 35*time.Second))
	for _, w := range dead {
		if by := without[w]; len(by) != 1 || by[0] == "here-a2" {
			t.Errorf("%s is served by %v after its instance died", w, by)
		}
	}
	for _, w := range dead {
		if by := instancesByWorker(decisionsBetween(list, 40*time.Second, time.Minute))[w]; !slices.Equal(by, []string{"here-a2"}) {
			t.Errorf("%s is served by %v when its instance is back", w, by)
		}
	}
	if r.Resumed == 0 || r.All.Completed != r.All.Sent {
		t.Errorf("%d resumed: %+v", r.Resumed, r.All)
	}
}

// TestGatewaysOfARegionShareItsClients: clients use all of them, each zone acknowledges the tickets of each, and the
// region serves as well as with one. One that dies cuts only its own streams; its other clients use another.
func TestGatewaysOfARegionShareItsClients(t *testing.T) {
	one, _ := runWithDecisions(t, instancesScenario(t, 1, 1))
	s := instancesScenario(t, 2, 3)
	many, list := runWithDecisions(t, s)
	a, _ := one.TTFT.Quantile(.9)
	b, _ := many.TTFT.Quantile(.9)
	used := map[string]int{}
	for _, d := range list {
		used[d.Gateway]++
	}
	t.Logf("p90 %v with one gateway, %v with three: %v", a, b, used)
	if len(used) != 3 || many.All.Completed != many.All.Sent || b > a*3/2 {
		t.Errorf("%v by %v: %+v", b, used, many.All)
	}
	s = instancesScenario(t, 2, 3)
	s.Faults = []Fault{{At: 20 * time.Second, For: 10 * time.Second, Kind: GatewayDead, Region: "here", Instance: 0}}
	r, list := runWithDecisions(t, s)
	t.Logf("%+v", r.All)
	if n := len(decisionsBetween(list, 20*time.Second, 30*time.Second)); n == 0 || slices.ContainsFunc(decisionsBetween(list, 20*time.Second+time.Millisecond, 30*time.Second), func(d PlacementDecision) bool { return d.Gateway == "here-gw1" }) {
		t.Errorf("%d decisions while a gateway is dead, some for it", n)
	}
	if !slices.ContainsFunc(decisionsBetween(list, 31*time.Second, time.Minute), func(d PlacementDecision) bool { return d.Gateway == "here-gw1" }) {
		t.Error("it gets no requests when it is back")
	}
	if r.All.Cut == 0 || r.All.Refused > 0 || r.All.Cut+r.All.Completed != r.All.Sent {
		t.Errorf("%+v", r.All)
	}
}

// TestEachWorkerIsReportedOnce: with several instances and gateways, the global tier counts each worker once.
func TestEachWorkerIsReportedOnce(t *testing.T) {
	s := threeRegionScenario(t, 6, .34, .33, .33)
	for i := range s.Fleet.Regions {
		s.Fleet.Regions[i].Gateways = 3
		for k := range s.Fleet.Regions[i].Zones {
			s.Fleet.Regions[i].Zones[k].Locals = 2
		}
	}
	s.Duration, s.GracePeriod, s.SampleInterval = 20*time.Second, time.Minute, time.Second
	if err := s.checkScenario(); err != nil {
		t.Fatal(err)
	}
	r, err := newSimulation(&s)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.runEvents(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, n := range r.global.nodes {
		for _, reg := range r.topology.regions {
			for _, p := range n.core.buildDirective(reg.name, r.loop.currentTime()).Peers {
				if m := p.Summary.FindModel(r.reader.defaultModel); m == nil || m.Total != 4 || m.Ready != 4 || len(p.Gateways) != 3 {
					t.Errorf("node %d has %s with %+v and %d gateways", n.index, p.Region, m, len(p.Gateways))
				}
			}
		}
	}
}

// TestDrainedTargetsGetNoNewRequests: a drained target gets nothing new after 1.5 s, its running requests end
// normally, and it is used again afterwards.
func TestDrainedTargetsGetNoNewRequests(t *testing.T) {
	for name, c := range map[string]struct {
		f  Fault
		in func(d PlacementDecision) bool
	}{
		"workers": {Fault{Kind: Drain, Region: "virginia", Zone: "a", Worker: 1, Workers: 1}, func(d PlacementDecision) bool { return d.Region == "virginia" && d.Zone == "a" && d.Worker == "w0002" }},
		"zone":    {Fault{Kind: Drain, Region: "virginia", Zone: "b"}, func(d PlacementDecision) bool { return d.Region == "virginia" && d.Zone == "b" }},
		"region":  {Fault{Kind: Drain, Region: "virginia"}, func(d PlacementDecision) bool { return d.Region == "virginia" }},
	} {
		s := threeRegionScenario(t, 6, .34, .33, .33)
		c.f.At, c.f.For = 20*time.Second, 15*time.Second
		s.Faults = []Fault{c.f}
		r, list := runWithDecisions(t, s)
		n := func(from, to time.Duration) (n int) {
			for _, d := range decisionsBetween(list, from, to) {
				if c.in(d) {
					n++
				}
			}
			return n
		}
		before, during, after := n(0, 20*time.Second), n(21500*time.Millisecond, 35*time.Second), n(37*time.Second, time.Minute)
		t.Logf("%s: %d before, %d while it is drained, %d after: %+v", name, before, during, after, r.All)
		if before == 0 || during > 0 || after == 0 || r.All.Completed != r.All.Sent {
			t.Errorf("%s: %d before, %d while it is drained, %d after: %+v", name, before, during, after, r.All)
		}
	}
}

// TestGradualDrainMovesTrafficOverItsTime: in a drain over 60 s, about half of the traffic has left after 30 s, and
// all after 60 s, in each tier by its own code.
func TestGradualDrainMovesTrafficOverItsTime(t *testing.T) {
	for name, c := range map[string]struct {
		f  Fault
		in func(d PlacementDecision) bool
	}{
		"worker": {Fault{Region: "virginia", Zone: "a", Worker: 1, Workers: 1}, func(d PlacementDecision) bool { return d.Region == "virginia" && d.Zone == "a" && d.Worker == "w0002" }},
		"zone":   {Fault{Region: "virginia", Zone: "b"}, func(d PlacementDecision) bool { return d.Region == "virginia" && d.Zone == "b" }},
		"region": {Fault{Region: "virginia"}, func(d PlacementDecision) bool { return d.Region == "virginia" }},
	} {
		c.f.Kind, c.f.At, c.f.For, c.f.Over = Drain, 20*time.Second, 80*time.Second, 60*time.Second
		play := func(faults ...Fault) (*RunResult, []PlacementDecision) {
			s := threeRegionScenario(t, 20, .34, .33, .33)
			s.Duration, s.Faults, s.Steering = 100*time.Second, faults, SteeringConfig{Enabled: true, TTL: 5 * time.Second}
			return runWithDecisions(t, s)
		}
		rate := func(list []PlacementDecision, from, to time.Duration) float64 {
			n := 0
			for _, d := range decisionsBetween(list, from, to) {
				if c.in(d) {
					n++
				}
			}
			return float64(n) / (to - from).Seconds()
		}
		_, usual := play()
		r, list := play(c.f)
		part := func(from, to time.Duration) float64 { return rate(list, from, to) / rate(usual, from, to) }
		first, half, last, whole := part(20*time.Second, 35*time.Second), part(40*time.Second, 60*time.Second), part(65*time.Second, 80*time.Second), part(82*time.Second, 99*time.Second)
		t.Logf("%s: %.1f/s usually; %.2f of it at first, %.2f at half-time, %.2f at last, %.2f then: %+v", name, rate(usual, 0, 100*time.Second), first, half, last, whole, r.All)
		if half < .3 || half > .75 || first <= half || last >= half || whole > 0 || r.All.Completed != r.All.Sent {
			t.Errorf("%s: %.2f of the usual traffic at first, %.2f at half-time, %.2f at last, %.2f then: %+v", name, first, half, last, whole, r.All)
		}
	}
}

// TestFollowersPlanAfterLeaderDeath: the remaining nodes answer and plan, and the returning node takes over their
// plans.
func TestFollowersPlanAfterLeaderDeath(t *testing.T) {
	lead := func(faults ...Fault) (plans int64, epochs []uint64) {
		s := threeRegionScenario(t, 16, .8, .1, .1)
		s.Steering, s.Faults = SteeringConfig{Enabled: true, TTL: 5 * time.Second}, faults
		s.GracePeriod, s.SampleInterval = time.Minute, time.Second
		r, err := newSimulation(&s)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.runEvents(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if res, err := r.recorder.buildResult(); err != nil || res.All.Refused > 0 || res.All.Cut > 0 {
			t.Errorf("%v: %+v", err, res)
		}
		for _, n := range r.global.nodes {
			epochs = append(epochs, n.planEpoch)
		}
		return r.result.Plans, epochs
	}
	dead := Fault{At: 5 * time.Second, For: 30 * time.Second, Kind: LeaderDead}
	one, epochs := lead(dead)
	if one == 0 || epochs[0] != epochs[1] || epochs[0] == 0 {
		t.Errorf("%d plans, nodes go by %v", one, epochs)
	}
	dead.For = 0
	two := Fault{At: 5*time.Second + time.Millisecond, Kind: LeaderDead}
	if none, epochs := lead(dead, two); none >= one || epochs[0] != epochs[2] {
		t.Errorf("%d plans, and %d without a majority, where nodes go by %v", one, none, epochs)
	}
}

// drawDyingFleet draws a fleet with several instances per tier, with deaths and drains.
func drawDyingFleet(t *rapid.T) Scenario {
	f := threeRegionFleet(rapid.IntRange(1, 3).Draw(t, "workers"))
	f.Regions = f.Regions[:rapid.IntRange(1, 3).Draw(t, "regions")]
	for i := range f.Regions {
		f.Regions[i].Gateways = rapid.IntRange(0, 3).Draw(t, "gateways")
		for k := range f.Regions[i].Zones {
			f.Regions[i].Zones[k].Locals = rapid.IntRange(0, 3).Draw(t, "locals")
		}
	}
	s := Scenario{Fleet: f, Seed: 1, Duration: 5 * time.Second, SampleInterval: 2 * time.Second, Steering: SteeringConfig{Enabled: true, TTL: 5 * time.Second}}
	for range rapid.IntRange(1, 6).Draw(t, "faults") {
		x := drawFault(t, &f)
		x.Kind = rapid.SampledFrom(FaultKinds()).Draw(t, "any kind")
		x.Share, x.AfterTokens = .5, 3
		if x.Kind != Partition {
			x.From = ""
		}
		r := f.findRegion(x.Region)
		most := max(r.Gateways, 1)
		if x.Kind == LocalDead {
			most = max(r.findZone(x.Zone).Locals, 1)
		}
		x.Instance = rapid.IntRange(0, most-1).Draw(t, "instance")
		s.Faults = append(s.Faults, x)
	}
	return s
}

// TestEachRequestEndsOnceWhenInstancesDie: Run returns an error when the counts are inconsistent, and repeated runs
// are equal.
func TestEachRequestEndsOnceWhenInstancesDie(t *testing.T) {
	any := rapid.Custom(drawDyingFleet)
	for seed := range 12 {
		s := any.Example(seed)
		var first []byte
		for range 2 {
			s.Workload = &skewedArrivals{openLoopArrivals: newPoissonArrivals(t, load.PoissonConfig{
				Rate: 12, Prompt: load.LengthDist{Median: 500, P90: 4000, Max: 60000}, Output: load.LengthDist{Median: 30, P90: 200, Max: 500}, Groups: 5, PrefixTokens: 300, Seed: 1,
			}), shares: []float64{.5, .3, .2}[:len(s.Fleet.Regions)]}
			r := runScenario(t, s)
			out, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if first != nil && !bytes.Equal(first, out) {
				t.Fatalf("seed %d: the same faults come to something else the second time: %+v", seed, s.Faults)
			}
			first = out
		}
	}
}

// TestGatewayDeathWhileItsStreamsMoveIsCounted: the streams are in transit to a peer, which is found dead or alive
// when they arrive.
func TestGatewayDeathWhileItsStreamsMoveIsCounted(t *testing.T) {
	s := threeRegionScenario(t, 8, .2, .7, .1)
	s.Duration = 30 * time.Second
	s.Faults = []Fault{
		{At: 20 * time.Second, Kind: ZoneDead, Region: "frankfurt", Zone: "a"},
		{At: 20 * time.Second, Kind: ZoneDead, Region: "frankfurt", Zone: "b"},
		{At: 20*time.Second + 10*time.Millisecond, Kind: RegionDead, Region: "frankfurt"},
	}
	r := runScenario(t, s)
	t.Logf("%+v, %d resumed", r.All, r.Resumed)
	if r.Resumed == 0 || r.All.Cut == 0 || r.All.Completed+r.All.Refused+r.All.Cut != r.All.Sent {
		t.Errorf("%+v, %d resumed: streams were to be on their way when their gateway died", r.All, r.Resumed)
	}
}
