package experiment

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
)

func newTestDemand(t *testing.T) PlanDemand {
	t.Helper()
	goal, err := ParseGoal("ttft_p99=2s")
	if err != nil {
		t.Fatal(err)
	}
	return PlanDemand{
		Sites: []PlanSite{
			{Name: "virginia", Zones: []string{"a", "b"}, Lat: 39.04, Lon: -77.49, Share: 3, GPU: "L4"},
			{Name: "frankfurt", Zones: []string{"a"}, Lat: 50.11, Lon: 8.68, Share: 1, GPU: "L4", Dollars: 2},
		},
		Workload: load.Workload{Name: "w1", Trace: writeTrace(t), Rate: 12}, Model: "llama-3.1-8b", Goals: []LatencyGoal{goal},
		Duration: 20 * time.Second, WarmUp: 2 * time.Second, Seed: 1,
	}
}

// TestPlanCapacityFindsLeastWorkers: the plan is the smallest that suffices, its cost is that of its workers, and
// regions that spill need no more than regions apart.
func TestPlanCapacityFindsLeastWorkers(t *testing.T) {
	d := newTestDemand(t)
	plan, err := PlanCapacity(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	apart := map[string]int{}
	workers, shared := 0, 0
	for _, n := range plan.Zones {
		apart[n.Region] += n.Apart
		workers += n.Apart
		shared += n.Shared
	}
	if len(plan.Zones) != 3 || workers != plan.Apart.Workers || shared != plan.Shared.Workers || shared > workers || apart["virginia"] < apart["frankfurt"] {
		t.Errorf("%+v", plan)
	}
	if a, b := plan.Zones[0].Apart, plan.Zones[1].Apart; a-b < 0 || a-b > 1 {
		t.Errorf("zones of one region have %d and %d", a, b)
	}
	if want := .7*float64(apart["virginia"]) + 2*float64(apart["frankfurt"]); plan.Apart.Dollars < want-.01 || plan.Apart.Dollars > want+.01 {
		t.Errorf("$%.2f an hour, want %.2f", plan.Apart.Dollars, want)
	}
	if v := plan.Apart.Figures["ttft_p99"]; v <= 0 || v > 2 {
		t.Errorf("ttft_p99 is %v", v)
	}
	d = newTestDemand(t) // one worker less does not suffice
	p := &capacityPlanner{demand: &d}
	if err := p.checkDemand(); err != nil {
		t.Fatal(err)
	}
	if n := apart["virginia"] - 1; n > 0 {
		if _, ok, err := p.tryFleet(t.Context(), []int{n, 0}, 0); ok || err != nil {
			t.Errorf("%d workers in virginia do as well: %v", n, err)
		}
	}
}

// TestUnreachableGoalsAreExplained: goals that no number of workers meets return an error with the reason.
func TestUnreachableGoalsAreExplained(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*PlanDemand)
		want   string
	}{
		{"an engine too slow", func(d *PlanDemand) { d.Goals[0].Within = 20 * time.Millisecond }, "one step of Llama-3.1-8B on L4 takes 69.9ms"},
		{"prompts too long", func(d *PlanDemand) { d.Goals[0].Within = 200 * time.Millisecond }, "no number of workers helps in virginia"},
		{"a bound on workers", func(d *PlanDemand) { d.MaxWorkers, d.Workload.Rate = 1, 60 }, "no number of workers helps in virginia: with 1 of L4"},
		{"no goal", func(d *PlanDemand) { d.Goals = nil }, "--slo ttft_p99=2s"},
		{"no region", func(d *PlanDemand) { d.Sites = nil }, "declare one"},
		{"an unknown GPU", func(d *PlanDemand) { d.Sites[1].GPU = "L5" }, `region frankfurt: unknown GPU "L5"`},
		{"no trace", func(d *PlanDemand) { d.Workload.Trace = "nothere.csv" }, "nothere.csv"},
		{"all warm-up", func(d *PlanDemand) { d.WarmUp = d.Duration }, "leave nothing to measure"},
	} {
		d := newTestDemand(t)
		c.change(&d)
		if plan, err := PlanCapacity(t.Context(), d); plan != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	for _, text := range []string{"", "ttft_p99", "goodput=2s", "ttft_p99=2", "ttft_p99=-1s", "queued_p99=1s"} {
		if _, err := ParseGoal(text); err == nil || !strings.Contains(err.Error(), "such as ttft_p99=2s") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
