package global

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// candidate is the planet's spec with one more model.
func candidate() string {
	return strings.Replace(specText(), "models:\n  - name: m1\n", "models:\n  - name: m1\n  - name: m2\n", 1)
}

// serves has a gate report outcomes under a stage, on top of its capacity.
func (g *gate) serves(stage uint64, requests, faults int64) {
	s := *capacityOf(10000, 8)
	o := capacity.Outcome{Stage: stage, Service: service, Model: "m1", Requests: requests, Faults: faults}
	o.TTFT[10] = requests - faults
	s.Outcomes = []capacity.Outcome{o}
	g.summary.Store(&s)
}

func trialRequest(text string, change func(*admin.ApplyRequest)) admin.ApplyRequest {
	r := admin.ApplyRequest{Name: "c.yaml", Text: text, Stage: []string{"frankfurt"}, ForMS: 60_000, Guard: "error_rate<2%", Reason: "CHG-7"}
	if change != nil {
		change(&r)
	}
	return r
}

// ended waits until nothing is on trial and returns the record of how it ended.
func (p *planet) ended() admin.AuditRecord {
	p.t.Helper()
	eventually(p.t, 20*time.Second, "the trial has ended on every node", func() bool {
		for _, s := range p.alive() {
			if s.node.State().Stage != nil {
				return false
			}
		}
		return true
	})
	a, err := p.admin(p.alive()[0]).Audit(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return a.Records[len(a.Records)-1]
}

// told waits until a region's gateway has a spec with m2, or one without it, at a version.
func (p *planet) told(region string, has bool, version uint64) {
	p.t.Helper()
	eventually(p.t, 10*time.Second, region+" has been told", func() bool {
		d := p.gates[region].directive.Load()
		return d != nil && strings.Contains(string(d.Spec), "m2") == has && d.SpecVersion == version
	})
}

func TestSpecOnTrialInOneRegion(t *testing.T) {
	p := newPlanet(t)
	p.settle()
	c := p.admin(p.nodes[1])

	t.Run("mistakes", func(t *testing.T) {
		for want, r := range map[string]admin.ApplyRequest{
			"is not in both specs":       trialRequest(candidate(), func(r *admin.ApplyRequest) { r.Stage = []string{"atlantis"} }),
			"hint: ":                     trialRequest(candidate(), func(r *admin.ApplyRequest) { r.Guard = "errors<2%" }),
			"negative time":              trialRequest(candidate(), func(r *admin.ApplyRequest) { r.ForMS = -1 }),
			"the guard bounds":           trialRequest(candidate(), func(r *admin.ApplyRequest) { r.Stage, r.Guard = nil, "requests>=9" }),
			"spec 1 is in force, not 99": trialRequest(candidate(), func(r *admin.ApplyRequest) { r.BasedOn = 99 }),
		} {
			if _, err := c.Apply(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v is answered %v, want %q", r.Stage, err, want)
			}
		}
		if _, err := c.EndStage(t.Context(), admin.StageRequest{Action: admin.StagePromote}); err == nil || !strings.Contains(err.Error(), "nothing is on trial") {
			t.Errorf("promoting nothing: %v", err)
		}
	})

	t.Run("dry run", func(t *testing.T) {
		a, err := c.Apply(t.Context(), trialRequest(candidate(), func(r *admin.ApplyRequest) { r.DryRun = true }))
		if err != nil || a.Stage == nil || a.Stage.Version != 2 || a.Stage.Guard != "error_rate<2%" || len(a.Changes) == 0 {
			t.Fatalf("%+v, %v", a, err)
		}
		if p.nodes[0].node.State().Stage != nil {
			t.Fatal("a dry run has put it on trial")
		}
	})

	a, err := c.Apply(t.Context(), trialRequest(candidate(), nil))
	if err != nil || a.Version != 1 || a.Stage == nil || a.Stage.Version != 2 {
		t.Fatalf("%+v, %v", a, err)
	}
	p.told("frankfurt", true, 2)
	// virginia's spec is the one it has had all along: only the stage's number says that it has been told.
	eventually(t, 10*time.Second, "virginia has been told of the stage", func() bool {
		return p.gates["virginia"].directive.Load().Stage == a.Stage.Number
	})
	p.told("virginia", false, 1)
	if p.gates["virginia"].directive.Load().Candidate {
		t.Error("virginia is told to run the candidate")
	}
	if d := p.gates["frankfurt"].directive.Load(); d.Stage != a.Stage.Number || !d.Candidate {
		t.Errorf("frankfurt is told of stage %d, candidate %v", d.Stage, d.Candidate)
	}
	if v := p.nodes[0].view.Load(); v.version != 1 || v.spec.ModelNamed("m2") != nil {
		t.Errorf("this tier itself answers by spec %d", v.version)
	}

	t.Run("shown", func(t *testing.T) {
		st, err := c.Status(t.Context())
		if err != nil || st.Stage == nil || st.Stage.Reason != "CHG-7" {
			t.Errorf("status shows %+v, %v", st.Stage, err)
		}
		e, err := c.Explain(t.Context(), admin.ExplainQuery{From: clients["tokyo"], Model: "m1"})
		if err != nil || !strings.Contains(strings.Join(e.Records[0].Notes, "\n"), "on trial in frankfurt") {
			t.Errorf("explain notes %+v, %v", e, err)
		}
		g, err := c.Stage(t.Context())
		if err != nil || g.Stage == nil || !strings.Contains(g.Stage.Text, "m2") {
			t.Errorf("get stage shows %+v, %v", g, err)
		}
	})

	t.Run("another apply", func(t *testing.T) {
		for _, r := range []admin.ApplyRequest{trialRequest(candidate(), nil), {Name: "x", Text: candidate()}} {
			if _, err := c.Apply(t.Context(), r); err == nil || !strings.Contains(err.Error(), "--replace") {
				t.Errorf("answered %v", err)
			}
		}
		r := trialRequest(candidate(), func(r *admin.ApplyRequest) { r.Replace = true })
		b, err := c.Apply(t.Context(), r)
		if err != nil || b.Stage.Number == a.Stage.Number {
			t.Fatalf("replaced by %+v, %v", b, err)
		}
		a = b
	})

	t.Run("too little data", func(t *testing.T) {
		p.gates["frankfurt"].serves(a.Stage.Number, 20, 20)
		time.Sleep(4 * guardEvery)
		if g := p.leader().node.State().Stage; g == nil || g.Number != a.Stage.Number {
			t.Fatal("20 requests have ended a trial that needs 50")
		}
	})

	t.Run("breach", func(t *testing.T) {
		p.gates["frankfurt"].serves(a.Stage.Number, 200, 60)
		r := p.ended()
		if r.Action != "rollback" || !strings.Contains(r.Actor, "(guard)") || !strings.Contains(r.Reason, "frankfurt: error_rate is 30% of 200 requests, limit 2%") {
			t.Errorf("audited as %+v", r)
		}
		p.told("frankfurt", false, 1)
		if st := p.nodes[0].node.State(); st.SpecVersion != 1 {
			t.Errorf("spec %d is in force", st.SpecVersion)
		}
	})
}

// TestSpecOnTrialOutlivesItsLeader: the window goes on under the next one, and what does well is promoted.
func TestSpecOnTrialOutlivesItsLeader(t *testing.T) {
	p := newPlanet(t)
	p.settle()
	first := p.leader()
	a, err := p.admin(first).Apply(t.Context(), trialRequest(candidate(), func(r *admin.ApplyRequest) { r.ForMS = 4000 }))
	if err != nil {
		t.Fatal(err)
	}
	p.gates["frankfurt"].serves(a.Stage.Number, 500, 1)
	eventually(t, 20*time.Second, "some of the window is written down", func() bool {
		for _, s := range p.alive() {
			if g := s.node.State().Stage; g == nil || g.Elapsed == 0 || g.Figures == "" {
				return g == nil
			}
		}
		return true
	})
	p.stop(first)
	r := p.ended()
	if r.Action != "promote" || !strings.Contains(r.Reason, "passed without a breach") {
		t.Errorf("audited as %+v", r)
	}
	for _, region := range []string{"virginia", "frankfurt", "tokyo"} {
		p.told(region, true, 2)
	}
	eventually(t, 10*time.Second, "every node answers by it", func() bool {
		for _, s := range p.alive() {
			if v := s.view.Load(); v.version != 2 || v.spec.ModelNamed("m2") == nil {
				return false
			}
		}
		return true
	})
}

// TestSilenceDecidesNothing: the region on trial is not heard, so that the window does not pass; an operator ends it.
func TestSilenceDecidesNothing(t *testing.T) {
	p := newPlanet(t)
	p.settle()
	p.gates["frankfurt"].stop()
	lead := p.leader()
	eventually(t, 10*time.Second, "frankfurt is not heard", func() bool {
		v := lead.view.Load()
		return v.regions[v.region("frankfurt")].group.State != capacity.Fresh
	})
	a, err := p.admin(lead).Apply(t.Context(), trialRequest(candidate(), func(r *admin.ApplyRequest) { r.ForMS, r.Guard = 300, "" }))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(8 * guardEvery)
	g := p.leader().node.State().Stage
	if g == nil || g.Number != a.Stage.Number || g.Elapsed > 300*time.Millisecond {
		t.Fatalf("silence has come to %+v", g)
	}
	b, err := p.admin(lead).EndStage(t.Context(), admin.StageRequest{Action: admin.StageRollback, Reason: "no news"})
	if err != nil || b.SpecVersion != 1 || b.Stage != nil {
		t.Fatalf("%+v, %v", b, err)
	}
	if r := p.ended(); r.Action != "rollback" || r.Reason != "no news" {
		t.Errorf("audited as %+v", r)
	}
}

// TestGuardedApplyEverywhere: without regions the spec is in force at once, and a breach puts the old one back under a
// version of its own.
func TestGuardedApplyEverywhere(t *testing.T) {
	p := newPlanet(t)
	p.settle()
	a, err := p.admin(p.nodes[0]).Apply(t.Context(), trialRequest(candidate(), func(r *admin.ApplyRequest) { r.Stage = nil }))
	if err != nil || a.Version != 2 || a.Stage == nil || !a.Stage.Everywhere {
		t.Fatalf("%+v, %v", a, err)
	}
	p.told("tokyo", true, 2)
	p.gates["tokyo"].serves(a.Stage.Number, 300, 300)
	if r := p.ended(); r.Action != "rollback" || !strings.Contains(r.Reason, "error_rate is 100%") {
		t.Errorf("audited as %+v", r)
	}
	p.told("tokyo", false, 3)
	p.told("virginia", false, 3)

	a, err = p.admin(p.nodes[0]).Apply(t.Context(), trialRequest(candidate(), func(r *admin.ApplyRequest) { r.Stage, r.ForMS = nil, 0 }))
	if err != nil || a.Version != 4 {
		t.Fatalf("%+v, %v", a, err)
	}
	b, err := p.admin(p.nodes[1]).EndStage(t.Context(), admin.StageRequest{Action: admin.StagePromote, Number: a.Stage.Number})
	if err != nil || b.SpecVersion != 4 || b.Stage != nil {
		t.Fatalf("%+v, %v", b, err)
	}
}

// TestATrialEndsAtANodeThatIsBehind: what one node has answered as begun, the next one asked ends, though it may not have
// heard of it yet.
func TestATrialEndsAtANodeThatIsBehind(t *testing.T) {
	p := newPlanet(t)
	p.settle()
	for i := range 24 {
		text := specText()
		if i%2 == 0 {
			text = candidate()
		}
		a, err := p.admin(p.nodes[i%3]).Apply(t.Context(), admin.ApplyRequest{Name: "c.yaml", Text: text, Guard: "error_rate<2%"})
		if err != nil {
			t.Fatal(err)
		}
		b, err := p.admin(p.nodes[(i+1)%3]).EndStage(t.Context(), admin.StageRequest{Action: admin.StagePromote, Number: a.Stage.Number})
		if err != nil || b.SpecVersion != a.Version || b.Stage != nil {
			t.Fatalf("round %d: spec %d on trial is promoted as %+v, %v", i, a.Version, b, err)
		}
	}
}
