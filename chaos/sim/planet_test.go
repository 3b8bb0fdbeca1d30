package sim

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/spec"
)

// world is three regions far from each other, of two zones with n workers each.
func world(n int) Fleet {
	var f Fleet
	for _, r := range []Region{{Name: "virginia", Lat: 39.04, Lon: -77.49}, {Name: "frankfurt", Lat: 50.11, Lon: 8.68}, {Name: "tokyo", Lat: 35.68, Lon: 139.69}} {
		for _, z := range []string{"a", "b"} {
			r.Zones = append(r.Zones, Zone{Name: z, Groups: []Group{{Count: n, GPU: "L4", Model: "Qwen2.5-7B"}}})
		}
		f.Regions = append(f.Regions, r)
	}
	return f
}

// skewed asks a part of everything in each region.
type skewed struct {
	*arrivals
	parts []float64
	n     uint64
}

func (s *skewed) Pop() *load.Request {
	q := s.arrivals.Pop()
	s.n++
	at := float64(mix(s.n)>>11) / (1 << 53)
	for i, p := range s.parts {
		if at -= p; at < 0 || i == len(s.parts)-1 {
			q.Region = int32(i)
			break
		}
	}
	return q
}

func around(tb testing.TB, rate float64, parts ...float64) Scenario {
	tb.Helper()
	return Scenario{
		Fleet: world(2), Seed: 3, Duration: time.Minute, SLO: SLO{TTFT: 2 * time.Second},
		Workload: &skewed{arrivals: poisson(tb, load.Poisson{
			Rate: rate, Prompt: load.Lengths{Median: 800, P90: 2000, Max: 6000}, Output: load.Lengths{Median: 60, P90: 200, Max: 600}, Groups: 30, PrefixTokens: 400, Seed: 9,
		}), parts: parts},
	}
}

// TestAFullRegionSpills: what one region cannot take the others do, and nothing is lost on the way.
func TestAFullRegionSpills(t *testing.T) {
	s := around(t, 14, 1)
	r := play(t, s)
	t.Logf("%+v, spilled %v (refused %d), good %.3f, ttft %v", r.All, r.Spills, r.SpillsRefused, r.Attainment, r.TTFT)
	if r.Spilled == 0 || r.Spills[0][1]+r.Spills[0][2] != r.Spilled {
		t.Errorf("spills %v", r.Spills)
	}
	if r.All.Completed+r.All.Refused != r.All.Sent {
		t.Errorf("%+v", r.All)
	}
}

// TestAFullRegionSpillsWithoutTheGlobalTier: gateways go on with peers as they were when that was lost, and ask them.
func TestAFullRegionSpillsWithoutTheGlobalTier(t *testing.T) {
	s := around(t, 14, 1)
	s.Duration = 45 * time.Second
	s.Faults = []Fault{{At: 10 * time.Second, Kind: GlobalDead}}
	_, list := placed(t, s)
	away := 0
	late := between(list, 25*time.Second, 45*time.Second)
	for _, d := range late {
		if d.Region != s.Fleet.Regions[0].Name {
			away++
		}
	}
	t.Logf("%d of %d requests were served elsewhere", away, len(late))
	if away*20 < len(late) {
		t.Errorf("%d of %d requests were served elsewhere: nobody spills once the global tier is gone", away, len(late))
	}
}

// TestEvenLoadStaysAtHome: without need nobody crosses an ocean.
func TestEvenLoadStaysAtHome(t *testing.T) {
	r := play(t, around(t, 6, .34, .33, .33))
	t.Logf("%+v, spilled %v, good %.3f, ttft %v", r.All, r.Spills, r.Attainment, r.TTFT)
	if r.Spilled*20 > r.All.Sent || r.All.Completed != r.All.Sent {
		t.Errorf("%d of %d spilled, %+v", r.Spilled, r.All.Sent, r.All)
	}
}

// TestSteeringMovesClients: with DNS steering, the clients of a region that is full are sent to others before any gateway
// has to spill, and resolvers ask once in a TTL.
func TestSteeringMovesClients(t *testing.T) {
	s := around(t, 16, .8, .1, .1)
	s.Steering = Steering{On: true, TTL: 5 * time.Second}
	s.Duration = 80 * time.Second
	r := play(t, s)
	t.Logf("%+v, spilled %v, %d plans, %d queries, good %.3f, ttft %v", r.All, r.Spills, r.Plans, r.Queries, r.Attainment, r.TTFT)
	if r.Plans == 0 || r.Queries == 0 || r.All.Completed+r.All.Refused != r.All.Sent {
		t.Errorf("%d plans, %d queries, %+v", r.Plans, r.Queries, r.All)
	}
	var moved int64
	for _, w := range r.Workers {
		if w.Region != "virginia" {
			moved += w.Requests
		}
	}
	if moved*10 < r.All.Sent*3 {
		t.Errorf("other regions served %d of %d", moved, r.All.Sent)
	}
}

func faulty(t *testing.T) Scenario {
	s := around(t, 8, .4, .3, .3)
	s.Steering = Steering{On: true, TTL: 5 * time.Second}
	s.Network.Loss = 0.02
	s.Faults = []Fault{
		{At: 5 * time.Second, For: 10 * time.Second, Kind: WorkerDead, Region: "virginia", Zone: "a", Worker: 0},
		{At: 8 * time.Second, For: 15 * time.Second, Kind: WorkerStalled, Region: "virginia", Zone: "b", Worker: 1},
		{At: 9 * time.Second, For: 15 * time.Second, Kind: WorkerSlow, Factor: 4, Region: "tokyo", Zone: "b", Workers: 2},
		{At: 12 * time.Second, For: 10 * time.Second, Kind: ZoneDead, Region: "frankfurt", Zone: "a"},
		{At: 20 * time.Second, For: 10 * time.Second, Kind: RegionDead, Region: "tokyo"},
		{At: 46 * time.Second, For: 10 * time.Second, Kind: GlobalDead},
		{At: 30 * time.Second, For: 10 * time.Second, Kind: Partition, Region: "virginia"},
		{At: 40 * time.Second, For: 5 * time.Second, Kind: Partition, Region: "virginia", From: "global"},
	}
	return s
}

// TestFaultsLoseNobodyUncounted: whatever breaks, each request ends once, few of them badly, and the same way each time.
func TestFaultsLoseNobodyUncounted(t *testing.T) {
	var first []byte
	for range 2 {
		r := play(t, faulty(t))
		if len(first) == 0 {
			t.Logf("%+v, retried %d, spilled %v, plans %d, good %.3f", r.All, r.Retried, r.Spills, r.Plans, r.Attainment)
			if r.All.Cut == 0 || r.Retried == 0 {
				t.Error("nothing broke: the faults are without effect")
			}
			if r.All.Completed*10 < r.All.Sent*9 {
				t.Errorf("less than nine in ten were answered: %+v", r.All)
			}
		}
		out, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && !bytes.Equal(first, out) {
			t.Error("the same faults come to something else the second time")
		}
		first = out
	}
}

// TestADeadWorkersStreamsGoOn with the others of its zone, from where they were, as with an Agent.
func TestADeadWorkersStreamsGoOn(t *testing.T) {
	s := chat(t, 4, 6, 2)
	s.Faults = []Fault{{At: 20 * time.Second, For: 10 * time.Second, Kind: WorkerDead, Region: "here", Zone: "a", Worker: 2}}
	var made uint64
	r := play(t, s)
	for _, w := range r.Workers {
		made += w.Output
	}
	if r.Resumed == 0 || r.All.Cut > 0 || r.All.Completed != r.All.Sent {
		t.Errorf("%d resumed: %+v", r.Resumed, r.All)
	}
	s = chat(t, 4, 6, 2) // without the fault as many tokens are made, and none twice
	var calm uint64
	for _, w := range play(t, s).Workers {
		calm += w.Output
	}
	if made != calm {
		t.Errorf("%d tokens were made for what takes %d", made, calm)
	}
}

// TestADeadWorkerCutsWhatRunsAndNoMore where the operator lets no stream go on: the zone does, and the worker comes back.
func TestADeadWorkerCutsWhatRunsAndNoMore(t *testing.T) {
	s := chat(t, 4, 6, 2)
	never := 0
	s.Spec = &spec.Spec{Routing: spec.Routing{ResumeText: &never}}
	s.Faults = []Fault{{At: 20 * time.Second, For: 10 * time.Second, Kind: WorkerDead, Region: "here", Zone: "a", Worker: 2}}
	r := play(t, s)
	t.Logf("%+v, retried %d, workers %+v", r.All, r.Retried, r.Workers[2])
	if r.All.Cut == 0 || r.All.Cut > 60 || r.Workers[2].Requests == 0 {
		t.Errorf("%+v", r.All)
	}
}

// TestAGatewayContinuesAStreamOnce loses a region's zones, and then those of the region that went on with its streams. As in
// a gateway, a stream that was continued and breaks off again is cut.
func TestAGatewayContinuesAStreamOnce(t *testing.T) {
	s := around(t, 4, 1)
	s.Gateways = true
	for _, z := range []string{"a", "b"} {
		s.Faults = append(s.Faults,
			Fault{At: 10 * time.Second, For: 40 * time.Second, Kind: ZoneDead, Region: "virginia", Zone: z},
			Fault{At: 11500 * time.Millisecond, For: 40 * time.Second, Kind: ZoneDead, Region: "frankfurt", Zone: z})
	}
	continued := map[uint64]map[int]bool{}
	s.OnDecision = func(d Decision) {
		if d.Made > 0 {
			if continued[d.Request] == nil {
				continued[d.Request] = map[int]bool{}
			}
			continued[d.Request][d.Made] = true
		}
	}
	r := play(t, s)
	for id, times := range continued {
		if len(times) > 1 {
			t.Errorf("the stream of request %d was continued %d times", id, len(times))
		}
	}
	if r.Resumed == 0 || r.All.Cut == 0 {
		t.Errorf("%d resumed, %+v: streams were to break off twice", r.Resumed, r.All)
	}
}
