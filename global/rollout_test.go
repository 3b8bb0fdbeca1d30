package global

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// stagedSpecText is the fleet's spec with one more model.
func stagedSpecText() string {
	return strings.Replace(testSpecText(), "models:\n  - name: m1\n", "models:\n  - name: m1\n  - name: m2\n", 1)
}

// reportOutcomes has a gateway report outcomes under a stage, in addition to its capacity.
func (g *fakeGateway) reportOutcomes(stage uint64, requests, faults int64) {
	s := *summaryWithCapacity(10000, 8)
	o := capacity.OutcomeCounts{Stage: stage, Service: testService, Model: "m1", Requests: requests, Failures: faults}
	o.TTFT[10] = requests - faults
	s.Outcomes = []capacity.OutcomeCounts{o}
	g.summary.Store(&s)
}

func stageRequest(text string, change func(*admin.ApplyRequest)) admin.ApplyRequest {
	r := admin.ApplyRequest{Name: "c.yaml", Text: text, Stage: []string{"frankfurt"}, ForMS: 60_000, Guard: "error_rate<2%", Reason: "CHG-7"}
	if change != nil {
		change(&r)
	}
	return r
}

// awaitRolloutFigures waits until the leader has judged the staged spec and recorded figures that contain a text.
func (p *testFleet) awaitRolloutFigures(text string) {
	p.t.Helper()
	testkit.Eventually(p.t, "the figures of the rollout contain "+text, func() bool {
		g := p.awaitLeader().node.State().Rollout
		return g == nil || strings.Contains(g.Figures, text)
	})
}

// awaitRolloutEnd waits until no spec is staged and returns the audit record of how it ended.
func (p *testFleet) awaitRolloutEnd() admin.AuditRecord {
	p.t.Helper()
	testkit.Eventually(p.t, "the rollout has ended on every node", func() bool {
		for _, s := range p.liveNodes() {
			if s.node.State().Rollout != nil {
				return false
			}
		}
		return true
	})
	a, err := p.adminClient(p.liveNodes()[0]).ListAudit(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return a.Records[len(a.Records)-1]
}

// awaitGatewaySpec waits until a region's gateway has a spec with m2, or one without it, at a version.
func (p *testFleet) awaitGatewaySpec(region string, has bool, version uint64) {
	p.t.Helper()
	testkit.Eventually(p.t, region+" has received the spec", func() bool {
		d := p.gateways[region].directive.Load()
		return d != nil && strings.Contains(string(d.Spec), "m2") == has && d.SpecVersion == version
	})
}

func TestStagedSpecInOneRegion(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	p.awaitAllRegions()
	c := p.adminClient(p.nodes[1])

	t.Run("mistakes", func(t *testing.T) {
		for want, r := range map[string]admin.ApplyRequest{
			"is not in both specs":       stageRequest(stagedSpecText(), func(r *admin.ApplyRequest) { r.Stage = []string{"atlantis"} }),
			"hint: ":                     stageRequest(stagedSpecText(), func(r *admin.ApplyRequest) { r.Guard = "errors<2%" }),
			"for_ms is negative":         stageRequest(stagedSpecText(), func(r *admin.ApplyRequest) { r.ForMS = -1 }),
			"the guard sets no limit":    stageRequest(stagedSpecText(), func(r *admin.ApplyRequest) { r.Stage, r.Guard = nil, "requests>=9" }),
			"spec 1 is in force, not 99": stageRequest(stagedSpecText(), func(r *admin.ApplyRequest) { r.BasedOn = 99 }),
		} {
			if _, err := c.ApplySpec(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v is answered %v, want %q", r.Stage, err, want)
			}
		}
		if _, err := c.EndStage(t.Context(), admin.StageRequest{Action: admin.StagePromote}); err == nil || !strings.Contains(err.Error(), "no spec is staged") {
			t.Errorf("promoting nothing: %v", err)
		}
	})

	t.Run("dry run", func(t *testing.T) {
		a, err := c.ApplySpec(t.Context(), stageRequest(stagedSpecText(), func(r *admin.ApplyRequest) { r.DryRun = true }))
		if err != nil || a.Stage == nil || a.Stage.Version != 2 || a.Stage.Guard != "error_rate<2%" || len(a.Changes) == 0 {
			t.Fatalf("%+v, %v", a, err)
		}
		if p.nodes[0].node.State().Rollout != nil {
			t.Fatal("a dry run has staged it")
		}
	})

	a, err := c.ApplySpec(t.Context(), stageRequest(stagedSpecText(), nil))
	if err != nil || a.Version != 1 || a.Stage == nil || a.Stage.Version != 2 {
		t.Fatalf("%+v, %v", a, err)
	}
	p.awaitGatewaySpec("frankfurt", true, 2)
	// Virginia's spec is unchanged: only the stage's number shows that it received the directive.
	testkit.Eventually(t, "virginia has received the stage", func() bool {
		return p.gateways["virginia"].directive.Load().StageNumber == a.Stage.Number
	})
	p.awaitGatewaySpec("virginia", false, 1)
	if p.gateways["virginia"].directive.Load().IsStaged {
		t.Error("virginia receives the candidate")
	}
	if d := p.gateways["frankfurt"].directive.Load(); d.StageNumber != a.Stage.Number || !d.IsStaged {
		t.Errorf("frankfurt receives stage %d, candidate %v", d.StageNumber, d.IsStaged)
	}
	if v := p.nodes[0].snapshot.Load(); v.Version != 1 || v.Spec.FindModel("m2") != nil {
		t.Errorf("this tier itself answers by spec %d", v.Version)
	}

	t.Run("shown", func(t *testing.T) {
		st, err := c.GetStatus(t.Context())
		if err != nil || st.Stage == nil || st.Stage.Reason != "CHG-7" {
			t.Errorf("status shows %+v, %v", st.Stage, err)
		}
		e, err := c.ExplainRequest(t.Context(), admin.ExplainQuery{From: clientAddrs["tokyo"], Model: "m1"})
		if err != nil || !strings.Contains(strings.Join(e.Records[0].Notes, "\n"), "staged in frankfurt") {
			t.Errorf("explain notes %+v, %v", e, err)
		}
		g, err := c.GetStage(t.Context())
		if err != nil || g.Stage == nil || !strings.Contains(g.Stage.Text, "m2") {
			t.Errorf("get stage shows %+v, %v", g, err)
		}
	})

	t.Run("another apply", func(t *testing.T) {
		for _, r := range []admin.ApplyRequest{stageRequest(stagedSpecText(), nil), {Name: "x", Text: stagedSpecText()}} {
			if _, err := c.ApplySpec(t.Context(), r); err == nil || !strings.Contains(err.Error(), "--replace") {
				t.Errorf("answered %v", err)
			}
		}
		r := stageRequest(stagedSpecText(), func(r *admin.ApplyRequest) { r.Replace = true })
		b, err := c.ApplySpec(t.Context(), r)
		if err != nil || b.Stage.Number == a.Stage.Number {
			t.Fatalf("replaced by %+v, %v", b, err)
		}
		a = b
	})

	t.Run("too little data", func(t *testing.T) {
		p.gateways["frankfurt"].reportOutcomes(a.Stage.Number, 20, 20)
		p.awaitRolloutFigures("20 requests, too few to judge")
		if g := p.awaitLeader().node.State().Rollout; g == nil || g.Number != a.Stage.Number {
			t.Fatal("20 requests have ended a rollout that needs 50")
		}
	})

	t.Run("breach", func(t *testing.T) {
		p.gateways["frankfurt"].reportOutcomes(a.Stage.Number, 200, 60)
		r := p.awaitRolloutEnd()
		if r.Action != "rollback" || !strings.Contains(r.Actor, "(guard)") || !strings.Contains(r.Reason, "frankfurt: error_rate is 30% of 200 requests, limit 2%") {
			t.Errorf("audited as %+v", r)
		}
		p.awaitGatewaySpec("frankfurt", false, 1)
		if st := p.nodes[0].node.State(); st.SpecVersion != 1 {
			t.Errorf("spec %d is in force", st.SpecVersion)
		}
	})
}

// TestRolloutOutlivesItsLeader: the window continues under the next leader, and a good candidate is promoted.
func TestRolloutOutlivesItsLeader(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	p.awaitAllRegions()
	first := p.awaitLeader()
	a, err := p.adminClient(first).ApplySpec(t.Context(), stageRequest(stagedSpecText(), func(r *admin.ApplyRequest) { r.ForMS = 4000 }))
	if err != nil {
		t.Fatal(err)
	}
	p.gateways["frankfurt"].reportOutcomes(a.Stage.Number, 500, 1)
	testkit.Eventually(t, "some of the window is written down", func() bool {
		for _, s := range p.liveNodes() {
			if g := s.node.State().Rollout; g == nil || g.Elapsed == 0 || g.Figures == "" {
				return g == nil
			}
		}
		return true
	})
	p.stopNode(first)
	r := p.awaitRolloutEnd()
	if r.Action != "promote" || !strings.Contains(r.Reason, "passed without a breach") {
		t.Errorf("audited as %+v", r)
	}
	for _, region := range []string{"virginia", "frankfurt", "tokyo"} {
		p.awaitGatewaySpec(region, true, 2)
	}
	testkit.Eventually(t, "every node answers by it", func() bool {
		for _, s := range p.liveNodes() {
			if v := s.snapshot.Load(); v.Version != 2 || v.Spec.FindModel("m2") == nil {
				return false
			}
		}
		return true
	})
}

// TestUnreachableRegionPausesTheRollout: the staged region does not report, so the window does not pass; an operator
// ends it.
func TestUnreachableRegionPausesTheRollout(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	p.awaitAllRegions()
	p.gateways["frankfurt"].stopChild()
	lead := p.awaitLeader()
	testkit.Eventually(t, "frankfurt is unreachable", func() bool {
		v := lead.snapshot.Load()
		return v.Regions[v.RegionIndex("frankfurt")].Group.State != capacity.Fresh
	})
	a, err := p.adminClient(lead).ApplySpec(t.Context(), stageRequest(stagedSpecText(), func(r *admin.ApplyRequest) { r.ForMS, r.Guard = 300, "" }))
	if err != nil {
		t.Fatal(err)
	}
	p.awaitRolloutFigures("have passed") // recorded after minProgressInterval, three times the window
	g := p.awaitLeader().node.State().Rollout
	if g == nil || g.Number != a.Stage.Number || g.Elapsed > 300*time.Millisecond {
		t.Fatalf("silence has come to %+v", g)
	}
	b, err := p.adminClient(lead).EndStage(t.Context(), admin.StageRequest{Action: admin.StageRollback, Reason: "no news"})
	if err != nil || b.SpecVersion != 1 || b.Stage != nil {
		t.Fatalf("%+v, %v", b, err)
	}
	if r := p.awaitRolloutEnd(); r.Action != "rollback" || r.Reason != "no news" {
		t.Errorf("audited as %+v", r)
	}
}

// TestBreachRollsBackEverywhere: without regions the spec is in force at once, and a breach restores the old one
// under a new version.
func TestBreachRollsBackEverywhere(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	p.awaitAllRegions()
	a, err := p.adminClient(p.nodes[0]).ApplySpec(t.Context(), stageRequest(stagedSpecText(), func(r *admin.ApplyRequest) { r.Stage = nil }))
	if err != nil || a.Version != 2 || a.Stage == nil || !a.Stage.Everywhere {
		t.Fatalf("%+v, %v", a, err)
	}
	p.awaitGatewaySpec("tokyo", true, 2)
	p.gateways["tokyo"].reportOutcomes(a.Stage.Number, 300, 300)
	if r := p.awaitRolloutEnd(); r.Action != "rollback" || !strings.Contains(r.Reason, "error_rate is 100%") {
		t.Errorf("audited as %+v", r)
	}
	p.awaitGatewaySpec("tokyo", false, 3)
	p.awaitGatewaySpec("virginia", false, 3)

	a, err = p.adminClient(p.nodes[0]).ApplySpec(t.Context(), stageRequest(stagedSpecText(), func(r *admin.ApplyRequest) { r.Stage, r.ForMS = nil, 0 }))
	if err != nil || a.Version != 4 {
		t.Fatalf("%+v, %v", a, err)
	}
	b, err := p.adminClient(p.nodes[1]).EndStage(t.Context(), admin.StageRequest{Action: admin.StagePromote, Number: a.Stage.Number})
	if err != nil || b.SpecVersion != 4 || b.Stage != nil {
		t.Fatalf("%+v, %v", b, err)
	}
}

// TestRolloutEndsAtALaggingNode: a stage that began on one node can be ended on another that may not have received it
// yet.
func TestRolloutEndsAtALaggingNode(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	p.awaitAllRegions()
	for i := range 24 {
		text := testSpecText()
		if i%2 == 0 {
			text = stagedSpecText()
		}
		a, err := p.adminClient(p.nodes[i%3]).ApplySpec(t.Context(), admin.ApplyRequest{Name: "c.yaml", Text: text, Guard: "error_rate<2%"})
		if err != nil {
			t.Fatal(err)
		}
		b, err := p.adminClient(p.nodes[(i+1)%3]).EndStage(t.Context(), admin.StageRequest{Action: admin.StagePromote, Number: a.Stage.Number})
		if err != nil || b.SpecVersion != a.Version || b.Stage != nil {
			t.Fatalf("round %d: staged spec %d is promoted as %+v, %v", i, a.Version, b, err)
		}
	}
}
