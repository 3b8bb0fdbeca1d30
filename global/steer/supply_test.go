package steer_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

// makeWarm makes every worker of a region warm and none ready: its rate is then unknown.
func makeWarm(r *steer.RegionState, workers float64) {
	r.Models = []steer.ModelCapacity{{Name: testModel, Warm: workers, Total: workers}}
}

// TestWarmRegionTakesOverflow: of 1500 tokens/s the near region takes 1000; the workers of the next one sleep, and
// the far one has unlimited capacity. Waking costs 120 ms, the RTT to the far region 150 ms more.
func TestWarmRegionTakesOverflow(t *testing.T) {
	in := threeRegionInput(1500, 1000, 0, 1000)
	in.Cells[0].RTT = []float32{0.010, 0.020, 0.200}
	in.Regions[0].Models[0].Ready, in.Regions[2].Models[0].Ready = 10, 10
	makeWarm(&in.Regions[1], 20) // 100 tokens/s each, as in other regions
	if got := plannedLoads(in, steer.SolvePlan(in).Plan); !isClose(got[0], 1000, 15) || !isClose(got[1], 500, 15) || got[2] != 0 {
		t.Errorf("loads are %v, want 1000 where it is near and 500 where it sleeps", got)
	}
	in.Cells[0].RTT[2] = 0.090 // now the ready one costs less than waking
	if got := plannedLoads(in, steer.SolvePlan(in).Plan); got[1] != 0 || !isClose(got[2], 500, 15) {
		t.Errorf("loads are %v, want the sleeping region left alone", got)
	}
	in.Demand[0].Rate = 500
	if got := plannedLoads(in, steer.SolvePlan(in).Plan); got[0] != 500 {
		t.Errorf("loads are %v, want the nearest regions", got)
	}
}

// TestSlowerWakeCostsMore: 5 s of waking, averaged over a minute, cost 208 ms, more than the 180 ms to the ready
// region.
func TestSlowerWakeCostsMore(t *testing.T) {
	for wake, sleeper := range map[float64]bool{0: true, 2: true, 4: true, 5: false, 30: false, 1e9: false} {
		in := threeRegionInput(1500, 1000, 0, 1000)
		in.Cells[0].RTT = []float32{0.010, 0.020, 0.200}
		in.Regions[0].Models[0].Ready, in.Regions[2].Models[0].Ready = 10, 10
		makeWarm(&in.Regions[1], 20)
		in.Regions[1].Models[0].WakeSeconds = wake
		if got := plannedLoads(in, steer.SolvePlan(in).Plan); (got[1] > 0) != sleeper {
			t.Errorf("waking in %v s: loads are %v", wake, got)
		}
	}
}

func TestCellsWithoutDemandDoNotWakeARegion(t *testing.T) {
	in := threeRegionInput(500, 1000, 0, 1000)
	makeWarm(&in.Regions[1], 20)
	in.Cells = append(in.Cells, steer.Cell{Name: "quiet", RTT: []float32{0.050, 0.010, 0.200}})
	table := steer.CompileTable(in.Spec, inputGeography(in), steer.SolvePlan(in).Plan)
	if c := table.PickRegion(&steer.PickQuery{Cell: 1}); c.Region != 0 {
		t.Errorf("a client 40 ms nearer to a sleeping region goes to region %d (%s), want the one that is ready", c.Region, c.Reason)
	}
}

func TestWarmRegionsAreSpreadByCapacity(t *testing.T) {
	in := threeRegionInput(3000, 0, 0, 0)
	makeWarm(&in.Regions[0], 1)
	makeWarm(&in.Regions[1], 3)
	in.Regions[2].Models = []steer.ModelCapacity{{Name: testModel, Cold: 9, Total: 9}}
	plan := steer.SolvePlan(in).Plan
	table, got := steer.CompileTable(in.Spec, inputGeography(in), plan), make([]float64, 3)
	for i := range 4000 {
		got[table.PickRegion(&steer.PickQuery{Cell: -1, Key: prefixKey(i)}).Region] += 1.0 / 4000
	}
	if !isClose(got[0], 0.25, 0.03) || !isClose(got[1], 0.75, 0.03) {
		t.Errorf("clients of no known place are spread %v, want a quarter and three quarters", got)
	}
	if l := plannedLoads(in, plan); l[2] != 0 || l[0] == 0 {
		t.Errorf("loads are %v", l)
	}
}

func TestPilotLightMayBeWarm(t *testing.T) {
	in := threeRegionInput(1000, 2000, 0, 5000)
	in.Spec.Services[0] = spec.Service{Name: testService, Mode: "failover", Order: []string{"r0", "r1", "r2"}, MinWarm: 2}
	in.Regions[0].Models[0].Ready, in.Regions[2].Models[0].Ready = 20, 50
	makeWarm(&in.Regions[1], 6) // 100 tokens/s each
	in.Regions[0].Dead = true
	got := realisedShares(in, steer.SolvePlan(in).Plan, 0)
	if want := 6 * 100.0 / 1000; !isClose(got[1], want, 0.03) || !isClose(got[2], 1-want, 0.03) {
		t.Errorf("the pilot light sleeps with six workers and gets %v, want %.2f of the clients", got, want)
	}
	makeWarm(&in.Regions[1], 1)
	if got := realisedShares(in, steer.SolvePlan(in).Plan, 0); got[1] > 0 {
		t.Errorf("with fewer workers than it should have it gets %v", got)
	}
}

func TestWarmWorkersAreNotUnhealthy(t *testing.T) {
	in := threeRegionInput(1000, 2000, 2000, 2000)
	for r := range in.Regions {
		in.Regions[r].Models[0].Ready, in.Regions[r].Models[0].Total = 10, 10
	}
	var guard steer.RegionHealthGuard
	guard.MarkUnhealthy(in, time.Unix(0, 0))
	in.Regions[1].Models[0] = steer.ModelCapacity{Name: testModel, Ready: 1, Warm: 6, Cold: 3, Total: 10}
	in.Regions[2].Models[0] = steer.ModelCapacity{Name: testModel, Ready: 1, Rate: 200, Total: 10}
	guard.MarkUnhealthy(in, time.Unix(1, 0))
	if in.Regions[1].Unhealthy || !in.Regions[2].Unhealthy {
		t.Errorf("unhealthy: %v where workers sleep, %v where they are down", in.Regions[1].Unhealthy, in.Regions[2].Unhealthy)
	}
}

// TestColdWorkersAreNoCapacity: no client is sent to a region that would have to load first.
func TestColdWorkersAreNoCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawWorld(t)
		some := false
		for r := range in.Regions {
			m := &in.Regions[r].Models[0]
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				*m = steer.ModelCapacity{Name: testModel, Cold: 5, Total: 5}
			case 1:
				makeWarm(&in.Regions[r], 3)
			default:
				m.Ready = 3
			}
			some = some || !in.Regions[r].Drained && !in.Regions[r].Dead && (m.Rate > 0 || m.Warm > 0)
		}
		if !some {
			t.Skip("no region can serve")
		}
		got := plannedLoads(in, steer.SolvePlan(in).Plan)
		for r := range in.Regions {
			if in.Regions[r].Models[0].Cold > 0 && got[r] > 0 {
				t.Fatalf("region %d has to load the model first and gets %v", r, got[r])
			}
		}
	})
}
