package uplink

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
)

// TestJudgeDirectives checks which positions may be put in force, one row after the other with the same judge.
func TestJudgeDirectives(t *testing.T) {
	now := time.Unix(1_000_000_000, 0)
	gen := uint64(now.Unix())
	future := gen + uint64(maxGenerationLead/time.Second) + 1
	for name, c := range map[string]struct {
		inForce Position
		said    map[string]Position // of other parents, just received
		p       Position
		want    PositionVerdict
	}{
		"first":                             {Position{}, nil, Position{0, 7}, NewerPosition},
		"same":                              {Position{3, 7}, nil, Position{3, 7}, SamePosition},
		"later index":                       {Position{3, 7}, nil, Position{3, 8}, NewerPosition},
		"older index":                       {Position{3, 7}, nil, Position{3, 6}, OlderIndex},
		"restored from an old archive":      {Position{3, 9000}, nil, Position{gen, 12}, NewerPosition},
		"first generation":                  {Position{0, 9000}, nil, Position{gen, 12}, NewerPosition},
		"left behind by a restore":          {Position{gen, 12}, nil, Position{3, 9001}, OlderGeneration},
		"earlier release after a restore":   {Position{gen, 12}, nil, Position{0, 9001}, OlderGeneration},
		"greatest index":                    {Position{3, 7}, nil, Position{3, math.MaxUint64}, ImplausiblePosition},
		"greatest generation":               {Position{3, 7}, nil, Position{math.MaxUint64, 8}, ImplausiblePosition},
		"generation beyond the slack":       {Position{3, 7}, nil, Position{future, 8}, ImplausiblePosition},
		"generation within the slack":       {Position{3, 7}, nil, Position{future - 1, 8}, NewerPosition},
		"what is in force is impossible":    {Position{future, 7}, nil, Position{3, 8}, NewerPosition},
		"one of two restored":               {Position{3, 7}, map[string]Position{"g2": {3, 7}}, Position{gen, 8}, NewerPosition},
		"one of three claims a restore":     {Position{3, 7}, map[string]Position{"g2": {3, 7}, "g3": {3, 7}}, Position{gen, 8}, ImplausiblePosition},
		"two of three restored":             {Position{3, 7}, map[string]Position{"g2": {gen, 7}, "g3": {3, 7}}, Position{gen, 8}, NewerPosition},
		"one of three a leap ahead":         {Position{3, 7}, map[string]Position{"g2": {3, 7}, "g3": {3, 7}}, Position{3, 8 + maxIndexLead}, ImplausiblePosition},
		"one of three less than that ahead": {Position{3, 7}, map[string]Position{"g2": {3, 7}, "g3": {3, 7}}, Position{3, 7 + maxIndexLead}, NewerPosition},
		"one of three far behind":           {Position{3, 7}, map[string]Position{"g2": {3, 8 + maxIndexLead}, "g3": {3, 7}}, Position{3, 9 + maxIndexLead}, NewerPosition},
		"two of four claim a restore":       {Position{3, 7}, map[string]Position{"g2": {gen, 7}, "g3": {3, 7}, "g4": {3, 7}}, Position{gen, 8}, ImplausiblePosition},
	} {
		t.Run(name, func(t *testing.T) {
			j := positionJudge{needsMajority: true}
			for from, p := range c.said {
				j.judgePosition(from, p, c.inForce, now)
			}
			if v, _ := j.judgePosition("g1", c.p, c.inForce, now); v != c.want {
				t.Errorf("verdict %d (%s), want %d", v, v, c.want)
			}
		})
	}

	j := positionJudge{needsMajority: true}
	j.judgePosition("g2", Position{3, 7}, Position{3, 7}, now)
	j.judgePosition("g3", Position{3, 7}, Position{3, 7}, now)
	if v, _ := j.judgePosition("g1", Position{gen, 8}, Position{3, 7}, now.Add(parentPositionTTL+1)); v != NewerPosition {
		t.Errorf("parents that are gone still count: %s", v)
	}
	locals := positionJudge{}
	locals.judgePosition("gw2", Position{3, 7}, Position{3, 7}, now)
	locals.judgePosition("gw3", Position{3, 7}, Position{3, 7}, now)
	if v, _ := locals.judgePosition("gw1", Position{gen, 8}, Position{3, 7}, now); v != NewerPosition {
		t.Errorf("a local does not follow its one gateway that reaches the global tier: %s", v)
	}
	for i := range 3 * maxParents {
		at := now.Add(time.Duration(i) * time.Minute)
		if j.judgePosition(fmt.Sprint("stranger", i), Position{3, 7}, Position{3, 7}, at); len(j.parents) > maxParents+1 {
			t.Fatalf("%d parents are remembered", len(j.parents))
		}
	}
}

// TestMajorityCheckAppliesToGlobalParentsOnly: one of three global nodes that is more than maxIndexLead ahead is
// ignored. One of three gateways is followed, because the others may be isolated from the global tier.
func TestMajorityCheckAppliesToGlobalParentsOnly(t *testing.T) {
	for role, want := range map[identity.Role]PositionVerdict{identity.RoleGlobal: ImplausiblePosition, identity.RoleGateway: NewerPosition} {
		c := &Child{cfg: ChildConfig{ParentRole: role}, log: slog.New(slog.DiscardHandler)}
		verdict := func(name string, index uint64) PositionVerdict {
			return c.JudgeDirective(identity.ID{Role: role, Name: name}, &Directive{Index: index}, Position{Index: 7})
		}
		for _, name := range []string{"p2", "p3"} {
			if v := verdict(name, 7); v != SamePosition {
				t.Errorf("parents of role %v: the directive of %s is %v", role, name, v)
			}
		}
		if v := verdict("p1", 8+maxIndexLead); v != want {
			t.Errorf("parents of role %v: a directive that is a leap ahead is %v, want %v", role, v, want)
		}
	}
}

// TestFaultyParentCannotAdvancePositionStepwise: the position in force never gets more than maxIndexLead ahead of two
// correct parents of three, however small the steps of the third.
func TestFaultyParentCannotAdvancePositionStepwise(t *testing.T) {
	now := time.Unix(1_000_000_000, 0)
	j, inForce, honest := positionJudge{needsMajority: true}, Position{0, 100}, Position{0, 100}
	adopt := func(from string, p Position) {
		if v, _ := j.judgePosition(from, p, inForce, now); !v.IsIgnored() {
			inForce = p
		}
	}
	for range 1000 {
		now = now.Add(time.Second)
		adopt("g2", honest)
		adopt("g3", honest)
		adopt("g1", Position{inForce.Generation, inForce.Index + maxIndexLead/2})
		adopt("g1", Position{inForce.Generation + 1, inForce.Index})
	}
	if inForce.Generation != 0 || inForce.Index > honest.Index+maxIndexLead {
		t.Fatalf("the liar has brought the position to %+v", inForce)
	}
}

// TestPersistentLagIsLogged: parents apply an entry a moment apart, which is not logged; a lasting lag is, at a
// limited rate.
func TestPersistentLagIsLogged(t *testing.T) {
	var l lagTimer
	now := time.Unix(0, 0)
	lines := 0
	for s := range 180 {
		if l.shouldWarn(true, now.Add(time.Duration(s)*time.Second)) {
			lines++
		}
	}
	if lines != 3 {
		t.Errorf("%d lines in three minutes, want 3", lines)
	}
	if l.shouldWarn(false, now.Add(181*time.Second)); l.shouldWarn(true, now.Add(182*time.Second)) {
		t.Error("a parent that was in step between is logged at once")
	}
}

// TestIgnoredDirectivesAreReported: with a parent left behind by a restore both ends log and show it, and the child
// counts.
func TestIgnoredDirectivesAreReported(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		gen := uint64(time.Now().Unix())
		at := map[uint64]Position{1: {0, 9000}, 3: {gen, 12}}
		logs := map[uint64]*bytes.Buffer{1: {}, 2: {}, 3: {}} // read once everything has stopped
		parent := func(i uint64) *testParent {
			return w.startParent(int(i), w.attachHost(int(i)), func(c *ParentConfig) {
				c.Log = slog.New(slog.NewTextHandler(logs[i], nil))
				c.BuildDirective = func(capacity.Path) *Directive { return &Directive{Generation: at[i].Generation, Index: at[i].Index} }
			})
		}
		g1, g3 := parent(1), parent(3)
		var c *Child
		var mu sync.Mutex
		inForce := Position{0, 9000}
		follows := func() Position { mu.Lock(); defer mu.Unlock(); return inForce }
		c = w.newChild(2, func(x *ChildConfig) {
			x.Log = slog.New(slog.NewTextHandler(logs[2], nil))
			x.PositionInForce = follows
			x.OnDirective = func(from identity.ID, d *Directive) {
				mu.Lock()
				defer mu.Unlock()
				if !c.JudgeDirective(from, d, inForce).IsIgnored() {
					inForce = d.Position()
				}
			}
		}, 1, 3)
		w.startChild(c)
		time.Sleep(8 * time.Second)
		if got := follows(); got != at[3] {
			t.Fatalf("in force is %+v", got)
		}
		time.Sleep(20 * time.Second)
		page1, page2, page3 := DescribeSessions("g1", g1.Parent, nil), DescribeSessions("l2", nil, c), DescribeSessions("g3", g3.Parent, nil)
		w.stopAll(c, g1, g3)
		if text := logs[2].String(); !strings.Contains(text, "directives of a parent are ignored") || !strings.Contains(text, "reason=older_generation") {
			t.Errorf("the child's log: %s", text)
		}
		if text := logs[1].String(); !strings.Contains(text, "does not follow this node's directives: it follows a later generation") {
			t.Errorf("the log of the parent that is left behind: %s", text)
		}
		if text := logs[3].String(); strings.Contains(text, "does not follow") {
			t.Errorf("the log of the parent that is followed: %s", text)
		}
		if n := c.ignoredByReason()["older_generation"]; n < 3 {
			t.Errorf("%d ignored directives are counted", n)
		}
		for _, s := range page2.Parents {
			want := at[3]
			reason := ""
			if strings.Contains(s.Peer, "g1") {
				want, reason = at[1], "older_generation"
			}
			if s.Generation != want.Generation || s.Index != want.Index || s.Ignored != reason {
				t.Errorf("the child's page: %+v", s)
			}
		}
		if s := page1.Children[0]; s.Generation != gen || s.Index != 12 || s.Ignored != "older_generation" {
			t.Errorf("the page of the parent that is left behind: %+v", s)
		}
		if s := page3.Children[0]; s.Generation != gen || s.Index != 12 || s.Ignored != "" {
			t.Errorf("the page of the parent that is followed: %+v", s)
		}
	})
}

// TestDirectiveFileKeepsGeneration: a restarted child does not follow a cluster from before the last restore.
func TestDirectiveFileKeepsGeneration(t *testing.T) {
	k := DirectiveFile{Dir: t.TempDir()}
	if err := k.SaveDirective(&Directive{Generation: 5, Index: 12, SpecVersion: 1, Spec: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	d, err := k.LoadDirective()
	if err != nil || d.Position() != (Position{Generation: 5}) {
		t.Fatalf("loaded %+v, %v", d, err)
	}
}
