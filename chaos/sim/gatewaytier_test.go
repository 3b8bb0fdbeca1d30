package sim

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/spec"
)

// threeRegionFleet is three distant regions with two zones of n workers each.
func threeRegionFleet(n int) Fleet {
	var f Fleet
	for _, r := range []FleetRegion{{Name: "virginia", Lat: 39.04, Lon: -77.49}, {Name: "frankfurt", Lat: 50.11, Lon: 8.68}, {Name: "tokyo", Lat: 35.68, Lon: 139.69}} {
		for _, z := range []string{"a", "b"} {
			r.Zones = append(r.Zones, FleetZone{Name: z, Groups: []WorkerGroup{{Count: n, GPU: "L4", Model: "Qwen2.5-7B"}}})
		}
		f.Regions = append(f.Regions, r)
	}
	return f
}

// skewedArrivals distributes requests over the regions by parts.
type skewedArrivals struct {
	*openLoopArrivals
	shares []float64
	popped uint64
}

func (s *skewedArrivals) Pop() *load.Request {
	q := s.openLoopArrivals.Pop()
	s.popped++
	at := float64(splitMix64(s.popped)>>11) / (1 << 53)
	for i, p := range s.shares {
		if at -= p; at < 0 || i == len(s.shares)-1 {
			q.Region = int32(i)
			break
		}
	}
	return q
}

func threeRegionScenario(tb testing.TB, rate float64, parts ...float64) Scenario {
	tb.Helper()
	return Scenario{
		Fleet: threeRegionFleet(2), Seed: 3, Duration: time.Minute, SLO: GoodputSLO{TTFT: 2 * time.Second},
		Workload: &skewedArrivals{openLoopArrivals: newPoissonArrivals(tb, load.PoissonConfig{
			Rate: rate, Prompt: load.LengthDist{Median: 800, P90: 2000, Max: 6000}, Output: load.LengthDist{Median: 60, P90: 200, Max: 600}, Groups: 30, PrefixTokens: 400, Seed: 9,
		}), shares: parts},
	}
}

// TestFullRegionSpills: other regions serve what one region cannot, and no request is lost.
func TestFullRegionSpills(t *testing.T) {
	s := threeRegionScenario(t, 14, 1)
	r := runScenario(t, s)
	t.Logf("%+v, spilled %v (refused %d), good %.3f, ttft %v", r.All, r.Spills, r.SpillsRefused, r.Attainment, r.TTFT)
	if r.Spilled == 0 || r.Spills[0][1]+r.Spills[0][2] != r.Spilled {
		t.Errorf("spills %v", r.Spills)
	}
	if r.All.Completed+r.All.Refused != r.All.Sent {
		t.Errorf("%+v", r.All)
	}
}

// TestFullRegionSpillsWithoutGlobalTier: gateways keep the last peer data, and spill.
func TestFullRegionSpillsWithoutGlobalTier(t *testing.T) {
	s := threeRegionScenario(t, 14, 1)
	s.Duration = 45 * time.Second
	s.Faults = []Fault{{At: 10 * time.Second, Kind: GlobalDead}}
	_, list := runWithDecisions(t, s)
	away := 0
	late := decisionsBetween(list, 25*time.Second, 45*time.Second)
	for _, d := range late {
		if d.Region != s.Fleet.Regions[0].Name {
			away++
		}
	}
	t.Logf("%d of %d requests were served elsewhere", away, len(late))
	if away*20 < len(late) {
		t.Errorf("%d of %d requests were served elsewhere: no gateway spills without the global tier", away, len(late))
	}
}

// TestEvenLoadDoesNotSpill: with even load no request goes to another region.
func TestEvenLoadDoesNotSpill(t *testing.T) {
	r := runScenario(t, threeRegionScenario(t, 6, .34, .33, .33))
	t.Logf("%+v, spilled %v, good %.3f, ttft %v", r.All, r.Spills, r.Attainment, r.TTFT)
	if r.Spilled*20 > r.All.Sent || r.All.Completed != r.All.Sent {
		t.Errorf("%d of %d spilled, %+v", r.Spilled, r.All.Sent, r.All)
	}
}

// TestSteeringMovesClients: with DNS steering, clients of a full region are sent to others before a gateway spills,
// and resolvers query once per TTL.
func TestSteeringMovesClients(t *testing.T) {
	s := threeRegionScenario(t, 16, .8, .1, .1)
	s.Steering = SteeringConfig{Enabled: true, TTL: 5 * time.Second}
	s.Duration = 80 * time.Second
	r := runScenario(t, s)
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

func faultyScenario(t *testing.T) Scenario {
	s := threeRegionScenario(t, 8, .4, .3, .3)
	s.Steering = SteeringConfig{Enabled: true, TTL: 5 * time.Second}
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

// TestEachRequestEndsOnceUnderFaults: under all faults each request ends once, few of them with an error, and
// repeated runs are equal.
func TestEachRequestEndsOnceUnderFaults(t *testing.T) {
	var first []byte
	for range 2 {
		r := runScenario(t, faultyScenario(t))
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

// TestStreamsOfDeadWorkerResume: on the zone's other workers, from where they were cut, as with an Agent.
func TestStreamsOfDeadWorkerResume(t *testing.T) {
	s := chatScenario(t, 4, 6, 2)
	s.Faults = []Fault{{At: 20 * time.Second, For: 10 * time.Second, Kind: WorkerDead, Region: "here", Zone: "a", Worker: 2}}
	var made uint64
	r := runScenario(t, s)
	for _, w := range r.Workers {
		made += w.OutputTokens
	}
	if r.Resumed == 0 || r.All.Cut > 0 || r.All.Completed != r.All.Sent {
		t.Errorf("%d resumed: %+v", r.Resumed, r.All)
	}
	s = chatScenario(t, 4, 6, 2) // without the fault the same number of tokens is made
	var undisturbed uint64
	for _, w := range runScenario(t, s).Workers {
		undisturbed += w.OutputTokens
	}
	if made != undisturbed {
		t.Errorf("%d tokens were made for what takes %d", made, undisturbed)
	}
}

// TestDeadWorkerCutsOnlyItsStreamsWithoutResume: without resume, other streams of the zone continue, and the worker
// returns.
func TestDeadWorkerCutsOnlyItsStreamsWithoutResume(t *testing.T) {
	s := chatScenario(t, 4, 6, 2)
	never := 0
	s.Spec = &spec.Spec{Routing: spec.Routing{ResumeText: &never}}
	s.Faults = []Fault{{At: 20 * time.Second, For: 10 * time.Second, Kind: WorkerDead, Region: "here", Zone: "a", Worker: 2}}
	r := runScenario(t, s)
	t.Logf("%+v, retried %d, workers %+v", r.All, r.Retried, r.Workers[2])
	if r.All.Cut == 0 || r.All.Cut > 60 || r.Workers[2].Requests == 0 {
		t.Errorf("%+v", r.All)
	}
}

// TestGatewayResumesAStreamOnce: a region's zones fail, and then those of the region that resumed its streams. As in
// a gateway, a resumed stream that is cut again is not resumed.
func TestGatewayResumesAStreamOnce(t *testing.T) {
	s := threeRegionScenario(t, 4, 1)
	s.AlwaysGateways = true
	for _, z := range []string{"a", "b"} {
		s.Faults = append(s.Faults,
			Fault{At: 10 * time.Second, For: 40 * time.Second, Kind: ZoneDead, Region: "virginia", Zone: z},
			Fault{At: 11500 * time.Millisecond, For: 40 * time.Second, Kind: ZoneDead, Region: "frankfurt", Zone: z})
	}
	continued := map[uint64]map[int]bool{}
	s.OnDecision = func(d PlacementDecision) {
		if d.PriorTokens > 0 {
			if continued[d.RequestID] == nil {
				continued[d.RequestID] = map[int]bool{}
			}
			continued[d.RequestID][d.PriorTokens] = true
		}
	}
	r := runScenario(t, s)
	for id, times := range continued {
		if len(times) > 1 {
			t.Errorf("the stream of request %d was continued %d times", id, len(times))
		}
	}
	if r.Resumed == 0 || r.All.Cut == 0 {
		t.Errorf("%d resumed, %+v: streams were to break off twice", r.Resumed, r.All)
	}
}
