package global

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestPlanHistoryKeepsTheNewestPlans: for any sequence of states, with repetitions or gaps, the history is bounded,
// ordered, and ends with the newest plan.
func TestPlanHistoryKeepsTheNewestPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, epoch := new(planHistory), uint64(0)
		for _, step := range rapid.SliceOfN(rapid.Uint64Range(0, 3), 0, 200).Draw(t, "steps") {
			epoch += step
			h.recordPlan(&consensus.State{PlanEpoch: epoch}, time.Unix(int64(epoch), 0))
		}
		all := h.newestPlans(0)
		switch {
		case len(all) > planHistorySize:
			t.Fatalf("%d plans are remembered", len(all))
		case (epoch == 0) != (len(all) == 0), epoch > 0 && all[len(all)-1].epoch != epoch:
			t.Fatalf("plan %d is not the newest of %d", epoch, len(all))
		}
		for i := 1; i < len(all); i++ {
			if all[i-1].epoch >= all[i].epoch {
				t.Fatalf("plan %d before %d", all[i-1].epoch, all[i].epoch)
			}
		}
	})
}

func TestPlanHistoryRestartsForAnotherCluster(t *testing.T) {
	h := new(planHistory)
	for _, epoch := range []uint64{7, 8, 3} {
		h.recordPlan(&consensus.State{PlanEpoch: epoch}, time.Unix(0, 0))
	}
	if all := h.newestPlans(0); len(all) != 1 || all[0].epoch != 3 {
		t.Errorf("after an older state: %+v", all)
	}
	if _, _, err := h.findPlan(8); err == nil || !strings.Contains(err.Error(), "keeps plans 3 to 3") {
		t.Errorf("a plan that is not remembered: %v", err)
	}
}

func (p *testFleet) testPlanVerbs(t *testing.T) {
	c := p.adminClient(p.nodes[1])
	var now *admin.PlanAnswer
	testkit.Eventually(t, "a node shows the plan in force with who made it", func() bool {
		var err error
		now, err = c.GetPlan(t.Context(), 0)
		return err == nil && now.InForce && now.By != "" && now.Reason != "" && now.Epoch > 1
	})
	if now.Node != "g2" || now.Term == 0 || now.Bytes == 0 || now.MadeAt.IsZero() || len(now.Services) != 1 {
		t.Errorf("plan is %+v", now)
	}
	s := now.Services[0]
	cells := 0.0
	for _, r := range s.Regions {
		cells += r.Cells
	}
	if s.Name != testService || len(s.Regions) != 3 || s.Cells == 0 || cells < float64(s.Cells)-0.01 || cells > float64(s.Cells)+0.01 {
		t.Errorf("the regions serve %.2f of %d cells: %+v", cells, s.Cells, s)
	}
	h, err := c.GetPlanHistory(t.Context(), 3)
	if err != nil || len(h.Plans) == 0 || len(h.Plans) > 3 {
		t.Fatalf("history is %+v, %v", h, err)
	}
	for i := 1; i < len(h.Plans); i++ {
		if h.Plans[i-1].Epoch <= h.Plans[i].Epoch {
			t.Errorf("plan %d is listed before %d", h.Plans[i-1].Epoch, h.Plans[i].Epoch)
		}
	}
	all, err := c.GetPlanHistory(t.Context(), 0)
	if err != nil || len(all.Plans) < 2 || !all.Plans[len(all.Plans)-1].First {
		t.Fatalf("whole history is %+v, %v", all, err)
	}
	oldest := all.Plans[len(all.Plans)-1].Epoch
	d, err := c.GetPlanDiff(t.Context(), oldest, 0)
	if err != nil || d.From.Epoch != oldest || d.To.Epoch < now.Epoch {
		t.Errorf("diff is %+v, %v", d, err)
	}
	if _, err := c.GetPlanDiff(t.Context(), 0, oldest); err == nil || !strings.Contains(err.Error(), "no earlier one") {
		t.Errorf("diff of the oldest with the one before it: %v", err)
	}
	if _, err := c.GetPlan(t.Context(), 1<<40); err == nil || !strings.Contains(err.Error(), "plan history") {
		t.Errorf("a plan to come: %v", err)
	}
}

// testDrainDiff drains a region and reads from the diff which clients left it.
func (p *testFleet) testDrainDiff(t *testing.T) {
	c := p.adminClient(p.nodes[0])
	var before uint64
	testkit.Eventually(t, "what earlier tests displaced is home again", func() bool {
		now, err := c.GetPlan(t.Context(), 0)
		if err != nil {
			return false
		}
		before = now.Epoch
		return len(now.Services) == 1 && len(now.Services[0].Rows) == 0
	})
	if _, err := c.StartDrain(t.Context(), admin.DrainRequest{Path: "tokyo"}); err != nil {
		t.Fatal(err)
	}
	defer c.EndDrain(t.Context(), "tokyo", "test")
	var d *admin.PlanDiffAnswer
	testkit.Eventually(t, "a plan without Tokyo", func() bool {
		h, err := c.GetPlanHistory(t.Context(), 0)
		if err != nil {
			return false
		}
		for _, m := range slices.Backward(h.Plans) { // the first without Tokyo: a later one may move others on
			if m.First || m.Epoch <= before {
				continue
			}
			if d, err = c.GetPlanDiff(t.Context(), 0, m.Epoch); err == nil && len(d.Without) == 1 && d.Without[0] == "tokyo" && len(d.Services) == 1 {
				return d.Services[0].Moved > 0
			}
		}
		return false
	})
	if len(d.Services[0].Cells) == 0 {
		t.Error("no cell left Tokyo")
	}
	for _, m := range d.Services[0].Cells {
		if len(m.From) != 1 || m.From[0].Region != "tokyo" || m.Moved < 0.99 {
			t.Errorf("cell %s moved %.2f from %+v to %+v", m.Cell, m.Moved, m.From, m.To)
		}
		for _, s := range m.To {
			if s.Region == "tokyo" {
				t.Errorf("cell %s is still sent to Tokyo: %+v", m.Cell, m.To)
			}
		}
	}
}
