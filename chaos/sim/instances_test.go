package sim

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/chaos/load"
)

// several is one region of one zone with six workers, before them so many instances and gateways.
func several(t testing.TB, locals, gateways int) Scenario {
	s := chat(t, 6, 9, 4)
	s.Fleet.Regions[0].Zones[0].Locals, s.Fleet.Regions[0].Gateways = locals, gateways
	s.Fleet.Regions[0].Lat, s.Fleet.Regions[0].Lon, s.Gateways = 50.1, 8.7, true
	return s
}

// placed are a run's decisions.
func placed(t *testing.T, s Scenario) (*Result, []Decision) {
	t.Helper()
	var list []Decision
	s.OnDecision = func(d Decision) { list = append(list, d) }
	return play(t, s), list
}

// between are the decisions from one second on, before another.
func between(list []Decision, from, to time.Duration) []Decision {
	var out []Decision
	for _, d := range list {
		if d.At >= from && d.At < to {
			out = append(out, d)
		}
	}
	return out
}

// owners are the instances that have sent something to each worker.
func owners(list []Decision) map[string][]string {
	out := map[string][]string{}
	for _, d := range list {
		if w := out[d.Worker]; !slices.Contains(w, d.Local) {
			out[d.Worker] = append(w, d.Local)
		}
	}
	return out
}

// TestInstancesDivideAZonesWorkers: each worker is one instance's. When that dies, others serve its workers within two seconds, its
// streams go on with them, and no client is told; when it is back, its workers return to it.
func TestInstancesDivideAZonesWorkers(t *testing.T) {
	s := several(t, 3, 2)
	s.Faults = []Fault{{At: 20 * time.Second, For: 15 * time.Second, Kind: LocalDead, Region: "here", Zone: "a", Instance: 1}}
	r, list := placed(t, s)
	t.Logf("%+v, resumed %d, retried %d", r.All, r.Resumed, r.Retried)
	calm := owners(between(list, 5*time.Second, 20*time.Second))
	var dead []string
	for w, by := range calm {
		if len(by) != 1 {
			t.Errorf("%s was served by %v", w, by)
		}
		if by[0] == "here-a2" {
			dead = append(dead, w)
		}
	}
	if len(calm) != 6 || len(dead) == 0 {
		t.Fatalf("before it dies: %v", calm)
	}
	without := owners(between(list, 22*time.Second, 35*time.Second))
	for _, w := range dead {
		if by := without[w]; len(by) != 1 || by[0] == "here-a2" {
			t.Errorf("%s is served by %v after its instance died", w, by)
		}
	}
	for _, w := range dead {
		if by := owners(between(list, 40*time.Second, time.Minute))[w]; !slices.Equal(by, []string{"here-a2"}) {
			t.Errorf("%s is served by %v when its instance is back", w, by)
		}
	}
	if r.Resumed == 0 || r.All.Completed != r.All.Sent {
		t.Errorf("%d resumed: %+v", r.Resumed, r.All)
	}
}

// TestSeveralGatewaysShareARegion: clients use all of them, each zone acknowledges each one's tickets, and the region serves as well
// as with one. One that dies cuts what it passed on and no more; its other clients come to another.
func TestSeveralGatewaysShareARegion(t *testing.T) {
	one, _ := placed(t, several(t, 1, 1))
	s := several(t, 2, 3)
	many, list := placed(t, s)
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
	s = several(t, 2, 3)
	s.Faults = []Fault{{At: 20 * time.Second, For: 10 * time.Second, Kind: GatewayDead, Region: "here", Instance: 0}}
	r, list := placed(t, s)
	t.Logf("%+v", r.All)
	if n := len(between(list, 20*time.Second, 30*time.Second)); n == 0 || slices.ContainsFunc(between(list, 20*time.Second+time.Millisecond, 30*time.Second), func(d Decision) bool { return d.Gateway == "here-gw1" }) {
		t.Errorf("%d decisions while a gateway is dead, some for it", n)
	}
	if !slices.ContainsFunc(between(list, 31*time.Second, time.Minute), func(d Decision) bool { return d.Gateway == "here-gw1" }) {
		t.Error("nobody uses it when it is back")
	}
	if r.All.Cut == 0 || r.All.Refused > 0 || r.All.Cut+r.All.Completed != r.All.Sent {
		t.Errorf("%+v", r.All)
	}
}

// TestNothingIsCountedTwice: with several instances and gateways, the global tier sees each worker once.
func TestNothingIsCountedTwice(t *testing.T) {
	s := around(t, 6, .34, .33, .33)
	for i := range s.Fleet.Regions {
		s.Fleet.Regions[i].Gateways = 3
		for k := range s.Fleet.Regions[i].Zones {
			s.Fleet.Regions[i].Zones[k].Locals = 2
		}
	}
	s.Duration, s.Grace, s.Every = 20*time.Second, time.Minute, time.Second
	if err := s.check(); err != nil {
		t.Fatal(err)
	}
	r, err := newRun(&s)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.play(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, n := range r.planet.nodes {
		for _, reg := range r.regions {
			for _, p := range n.lab.Directive(reg.name, r.time(r.now)).Peers {
				if m := p.Summary.Model(r.only); m == nil || m.Total != 4 || m.Ready != 4 || len(p.Gateways) != 3 {
					t.Errorf("node %d has %s with %+v and %d gateways", n.at, p.Region, m, len(p.Gateways))
				}
			}
		}
	}
}

// TestDrains: what is drained gets nothing new within a second and a half, what runs there ends whole, and it is used again after.
func TestDrains(t *testing.T) {
	for name, c := range map[string]struct {
		f  Fault
		in func(d Decision) bool
	}{
		"workers": {Fault{Kind: Drain, Region: "virginia", Zone: "a", Worker: 1, Workers: 1}, func(d Decision) bool { return d.Region == "virginia" && d.Zone == "a" && d.Worker == "w0002" }},
		"zone":    {Fault{Kind: Drain, Region: "virginia", Zone: "b"}, func(d Decision) bool { return d.Region == "virginia" && d.Zone == "b" }},
		"region":  {Fault{Kind: Drain, Region: "virginia"}, func(d Decision) bool { return d.Region == "virginia" }},
	} {
		s := around(t, 6, .34, .33, .33)
		c.f.At, c.f.For = 20*time.Second, 15*time.Second
		s.Faults = []Fault{c.f}
		r, list := placed(t, s)
		n := func(from, to time.Duration) (n int) {
			for _, d := range between(list, from, to) {
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

// TestTheLeaderDies: the nodes that are left answer and plan on, and the one that comes back takes over what they agreed on.
func TestTheLeaderDies(t *testing.T) {
	lead := func(faults ...Fault) (plans int64, epochs []uint64) {
		s := around(t, 16, .8, .1, .1)
		s.Steering, s.Faults = Steering{On: true, TTL: 5 * time.Second}, faults
		s.Grace, s.Every = time.Minute, time.Second
		r, err := newRun(&s)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.play(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if res, err := r.result(); err != nil || res.All.Refused > 0 || res.All.Cut > 0 {
			t.Errorf("%v: %+v", err, res)
		}
		for _, n := range r.planet.nodes {
			epochs = append(epochs, n.epoch)
		}
		return r.out.Plans, epochs
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

// dying draws a fleet of several instances at each tier, and what dies in it and is drained.
func dying(t *rapid.T) Scenario {
	f := world(rapid.IntRange(1, 3).Draw(t, "workers"))
	f.Regions = f.Regions[:rapid.IntRange(1, 3).Draw(t, "regions")]
	for i := range f.Regions {
		f.Regions[i].Gateways = rapid.IntRange(0, 3).Draw(t, "gateways")
		for k := range f.Regions[i].Zones {
			f.Regions[i].Zones[k].Locals = rapid.IntRange(0, 3).Draw(t, "locals")
		}
	}
	s := Scenario{Fleet: f, Seed: 1, Duration: 5 * time.Second, Every: 2 * time.Second, Steering: Steering{On: true, TTL: 5 * time.Second}}
	for range rapid.IntRange(1, 6).Draw(t, "faults") {
		x := anyFault(t, &f)
		x.Kind = rapid.SampledFrom(Kinds()).Draw(t, "any kind")
		if x.Kind != Partition {
			x.From = ""
		}
		r := f.region(x.Region)
		most := max(r.Gateways, 1)
		if x.Kind == LocalDead {
			most = max(r.zone(x.Zone).Locals, 1)
		}
		x.Instance = rapid.IntRange(0, most-1).Draw(t, "instance")
		s.Faults = append(s.Faults, x)
	}
	return s
}

// TestWhateverDiesEachRequestEndsOnce: Run returns an error when the counts do not add up, and comes to the same each time.
func TestWhateverDiesEachRequestEndsOnce(t *testing.T) {
	any := rapid.Custom(dying)
	for seed := range 12 {
		s := any.Example(seed)
		var first []byte
		for range 2 {
			s.Workload = &skewed{arrivals: poisson(t, load.Poisson{
				Rate: 12, Prompt: load.Lengths{Median: 500, P90: 4000, Max: 60000}, Output: load.Lengths{Median: 30, P90: 200, Max: 500}, Groups: 5, PrefixTokens: 300, Seed: 1,
			}), parts: []float64{.5, .3, .2}[:len(s.Fleet.Regions)]}
			r := play(t, s)
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

// TestAGatewayDiesWhileItsStreamsGoElsewhere: they are on their way to a peer, which is found dead or not when they arrive.
func TestAGatewayDiesWhileItsStreamsGoElsewhere(t *testing.T) {
	s := around(t, 8, .2, .7, .1)
	s.Duration = 30 * time.Second
	s.Faults = []Fault{
		{At: 20 * time.Second, Kind: ZoneDead, Region: "frankfurt", Zone: "a"},
		{At: 20 * time.Second, Kind: ZoneDead, Region: "frankfurt", Zone: "b"},
		{At: 20*time.Second + 10*time.Millisecond, Kind: RegionDead, Region: "frankfurt"},
	}
	r := play(t, s)
	t.Logf("%+v, %d resumed", r.All, r.Resumed)
	if r.Resumed == 0 || r.All.Cut == 0 || r.All.Completed+r.All.Refused+r.All.Cut != r.All.Sent {
		t.Errorf("%+v, %d resumed: streams were to be on their way when their gateway died", r.All, r.Resumed)
	}
}
