package steer_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

// asleep makes every worker of a region warm and none ready: its rate is not known then.
func asleep(r *steer.Region, workers float64) {
	r.Models = []steer.Model{{Name: model, Warm: workers, Total: workers}}
}

// TestARegionThatSleepsTakesWhatOthersHaveNoRoomFor: 1500 tokens/s, the near region takes 1000, the next sleeps, and the
// far one has as much as it likes. Waking costs 120 ms and the way to the far region 150 ms more.
func TestARegionThatSleepsTakesWhatOthersHaveNoRoomFor(t *testing.T) {
	in := three(1500, 1000, 0, 1000)
	in.Cells[0].RTT = []float32{0.010, 0.020, 0.200}
	in.Regions[0].Models[0].Ready, in.Regions[2].Models[0].Ready = 10, 10
	asleep(&in.Regions[1], 20) // 100 tokens/s each, as they do elsewhere
	if got := loads(in, steer.Solve(in).Plan); !close2(got[0], 1000, 15) || !close2(got[1], 500, 15) || got[2] != 0 {
		t.Errorf("loads are %v, want 1000 where it is near and 500 where it sleeps", got)
	}
	in.Cells[0].RTT[2] = 0.090 // now the ready one costs less than waking
	if got := loads(in, steer.Solve(in).Plan); got[1] != 0 || !close2(got[2], 500, 15) {
		t.Errorf("loads are %v, want the sleeping region left alone", got)
	}
	in.Demand[0].Rate = 500
	if got := loads(in, steer.Solve(in).Plan); got[0] != 500 {
		t.Errorf("loads are %v, want everybody where it is near", got)
	}
}

// TestASlowWakingCostsMore: 5 s to wake are shared out over a minute at 208 ms, more than the 180 ms to the ready region.
func TestASlowWakingCostsMore(t *testing.T) {
	for wake, sleeper := range map[float64]bool{0: true, 2: true, 4: true, 5: false, 30: false, 1e9: false} {
		in := three(1500, 1000, 0, 1000)
		in.Cells[0].RTT = []float32{0.010, 0.020, 0.200}
		in.Regions[0].Models[0].Ready, in.Regions[2].Models[0].Ready = 10, 10
		asleep(&in.Regions[1], 20)
		in.Regions[1].Models[0].Wake = wake
		if got := loads(in, steer.Solve(in).Plan); (got[1] > 0) != sleeper {
			t.Errorf("waking in %v s: loads are %v", wake, got)
		}
	}
}

func TestPlacesWithoutDemandDoNotWakeARegion(t *testing.T) {
	in := three(500, 1000, 0, 1000)
	asleep(&in.Regions[1], 20)
	in.Cells = append(in.Cells, steer.Cell{Name: "quiet", RTT: []float32{0.050, 0.010, 0.200}})
	table := steer.Compile(in.Spec, geography(in), steer.Solve(in).Plan)
	if c := table.Pick(&steer.Query{Cell: 1}); c.Region != 0 {
		t.Errorf("a client 40 ms nearer to a sleeping region goes to region %d (%s), want the one that is ready", c.Region, c.Reason)
	}
}

func TestAWorldThatSleepsIsSpreadByWhatItCouldDo(t *testing.T) {
	in := three(3000, 0, 0, 0)
	asleep(&in.Regions[0], 1)
	asleep(&in.Regions[1], 3)
	in.Regions[2].Models = []steer.Model{{Name: model, Cold: 9, Total: 9}}
	plan := steer.Solve(in).Plan
	table, got := steer.Compile(in.Spec, geography(in), plan), make([]float64, 3)
	for i := range 4000 {
		got[table.Pick(&steer.Query{Cell: -1, Key: prefixKey(i)}).Region] += 1.0 / 4000
	}
	if !close2(got[0], 0.25, 0.03) || !close2(got[1], 0.75, 0.03) {
		t.Errorf("clients of no known place are spread %v, want a quarter and three quarters", got)
	}
	if l := loads(in, plan); l[2] != 0 || l[0] == 0 {
		t.Errorf("loads are %v", l)
	}
}

func TestAPilotLightMaySleep(t *testing.T) {
	in := three(1000, 2000, 0, 5000)
	in.Spec.Services[0] = spec.Service{Name: service, Mode: "failover", Order: []string{"r0", "r1", "r2"}, MinWarm: 2}
	in.Regions[0].Models[0].Ready, in.Regions[2].Models[0].Ready = 20, 50
	asleep(&in.Regions[1], 6) // 100 tokens/s each
	in.Regions[0].Lost = true
	got := realisedBy(in, steer.Solve(in).Plan, 0)
	if want := 6 * 100.0 / 1000; !close2(got[1], want, 0.03) || !close2(got[2], 1-want, 0.03) {
		t.Errorf("the pilot light sleeps with six workers and gets %v, want %.2f of the clients", got, want)
	}
	asleep(&in.Regions[1], 1)
	if got := realisedBy(in, steer.Solve(in).Plan, 0); got[1] > 0 {
		t.Errorf("with fewer workers than it should have it gets %v", got)
	}
}

func TestSleepIsNotSickness(t *testing.T) {
	in := three(1000, 2000, 2000, 2000)
	for r := range in.Regions {
		in.Regions[r].Models[0].Ready, in.Regions[r].Models[0].Total = 10, 10
	}
	var guard steer.Guard
	guard.Mark(in, time.Unix(0, 0))
	in.Regions[1].Models[0] = steer.Model{Name: model, Ready: 1, Warm: 6, Cold: 3, Total: 10}
	in.Regions[2].Models[0] = steer.Model{Name: model, Ready: 1, Rate: 200, Total: 10}
	guard.Mark(in, time.Unix(1, 0))
	if in.Regions[1].Sick || !in.Regions[2].Sick {
		t.Errorf("sick: %v where workers sleep, %v where they are down", in.Regions[1].Sick, in.Regions[2].Sick)
	}
}

// TestColdWorkersAreNoCapacity: whatever else there is, nobody is sent to a region that would first have to load.
func TestColdWorkersAreNoCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := world(t)
		some := false
		for r := range in.Regions {
			m := &in.Regions[r].Models[0]
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				*m = steer.Model{Name: model, Cold: 5, Total: 5}
			case 1:
				asleep(&in.Regions[r], 3)
			default:
				m.Ready = 3
			}
			some = some || !in.Regions[r].Drained && !in.Regions[r].Lost && (m.Rate > 0 || m.Warm > 0)
		}
		if !some {
			t.Skip("nobody can serve")
		}
		got := loads(in, steer.Solve(in).Plan)
		for r := range in.Regions {
			if in.Regions[r].Models[0].Cold > 0 && got[r] > 0 {
				t.Fatalf("region %d has to load the model first and gets %v", r, got[r])
			}
		}
	})
}
