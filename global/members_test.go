package global

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestMembersAndArchiveThroughTheAdminInterface transfers leadership, saves the state, changes the spec and restores
// it.
func TestMembersAndArchiveThroughTheAdminInterface(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	p.awaitAllRegions()
	lead := p.awaitLeader()
	next := p.nodes[0]
	if next == lead {
		next = p.nodes[1]
	}
	c := p.adminClient(p.nodes[2])
	if _, err := c.TransferLeadership(t.Context(), admin.LeaderRequest{To: next.cfg.Name}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the node named leads", next.IsLeader)
	if _, err := c.RemoveMember(t.Context(), "g9", ""); err == nil || !strings.Contains(err.Error(), "is not a member") {
		t.Errorf("removing an unknown node: %v", err)
	}
	saved, err := c.GetArchive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(testSpecText(), "interval: 200ms", "interval: 300ms", 1)
	if _, err := c.ApplySpec(t.Context(), admin.ApplyRequest{Name: "s", Text: text}); err != nil {
		t.Fatal(err)
	}
	// A busy machine may cause an election at any time: the leader is looked up again, and an attempt without a leader
	// is repeated.
	var version uint64
	testkit.Eventually(t, "the leader restores, and a follower refuses to", func() bool {
		leads := p.awaitLeader()
		term := leads.node.Status().Term
		same := func() bool { return leads.IsLeader() && leads.node.Status().Term == term }
		for _, s := range p.nodes {
			if s == leads {
				continue
			}
			if _, err := p.adminClient(s).RestoreArchive(t.Context(), admin.ArchiveRequest{Data: saved.Data}); err == nil || !strings.Contains(err.Error(), "only the leader") {
				if same() {
					t.Fatalf("restoring at a follower: %v", err)
				}
				return false
			}
		}
		a, err := p.adminClient(leads).RestoreArchive(t.Context(), admin.ArchiveRequest{Data: saved.Data, Reason: "test"})
		if err != nil {
			if same() {
				t.Fatalf("restoring: %v", err)
			}
			return false
		}
		version = a.Version
		return true
	})
	if version < 3 {
		t.Fatalf("restored as version %d", version)
	}
	testkit.Eventually(t, "every node answers from the restored spec and follows its directives", func() bool {
		for _, s := range p.liveNodes() {
			if v := s.snapshot.Load(); v.Version != version || v.Spec.Steering.Interval.String() != "200ms" {
				return false
			}
		}
		for _, g := range p.gateways {
			if d := g.directive.Load(); d == nil || d.SpecVersion != version {
				return false
			}
		}
		return true
	})
}

// testLinearizableReads writes through one node and reads at once at each of the others: a linearizable read shows
// the write.
func (p *testFleet) testLinearizableReads(t *testing.T) {
	for i := range 10 {
		from := p.adminClient(p.nodes[i%3])
		now, err := from.GetSpecLinearizable(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(testSpecText(), "name: tokyo, place", "name: tokyo, bias_ms: "+[]string{"1", "2"}[i%2]+", place", 1)
		a, err := from.ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: text, BasedOn: now.Version})
		if err != nil || a.Version != now.Version+1 {
			t.Fatalf("applying over spec %d: %+v, %v", now.Version, a, err)
		}
		path := []string{"tokyo", "frankfurt"}[i%2]
		if _, err := from.StartDrain(t.Context(), admin.DrainRequest{Path: path}); err != nil {
			t.Fatal(err)
		}
		for _, n := range p.nodes {
			to := p.adminClient(n)
			if s, err := to.GetSpecLinearizable(t.Context()); err != nil || s.Version != a.Version || !strings.Contains(s.Text, "bias_ms") {
				t.Fatalf("after version %d was put, a linearizable read at another node has %+v, %v", a.Version, s, err)
			}
			if d, err := to.ListDrainsLinearizable(t.Context()); err != nil || len(d.Drains) != 1 || d.Drains[0].Path != path {
				t.Fatalf("after %s was drained, a linearizable read has %+v, %v", path, d, err)
			}
		}
		var e *admin.Error
		if _, err := p.adminClient(p.nodes[(i+1)%3]).ApplySpec(t.Context(), admin.ApplyRequest{Text: text, BasedOn: now.Version}); !errors.As(err, &e) || e.Status != 409 {
			t.Fatalf("applying over a version that is gone: %v", err)
		}
		if _, err := from.EndDrain(t.Context(), path, "test"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.adminClient(p.nodes[0]).ApplySpec(t.Context(), admin.ApplyRequest{Text: testSpecText(), BasedOn: 1 << 40}); err == nil || !strings.Contains(err.Error(), "is in force") {
		t.Fatalf("applying over a version that never was: %v", err)
	}
	if _, err := p.adminClient(p.nodes[0]).ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: testSpecText()}); err != nil {
		t.Fatal(err)
	}
}

// TestStatusAndMembersCountSpareVotersAlike: a voter that cannot write, or does not answer, does not count as a spare
// when another is silent.
func TestStatusAndMembersCountSpareVotersAlike(t *testing.T) {
	self := consensus.MemberStatus{Member: consensus.Member{ID: "g1", Voter: true}, Self: true}
	ok := func(id string) consensus.MemberStatus {
		return consensus.MemberStatus{Member: consensus.Member{ID: id, Voter: true}, Contacted: true, Answered: true}
	}
	with := func(s consensus.MemberStatus, change func(*consensus.MemberStatus)) consensus.MemberStatus {
		change(&s)
		return s
	}
	gone := with(ok("g5"), func(s *consensus.MemberStatus) { s.SinceContact, s.Answered = time.Minute, false })
	full := with(ok("g4"), func(s *consensus.MemberStatus) { s.DiskFailing = true })
	mute := with(ok("g3"), func(s *consensus.MemberStatus) { s.Answered = false })
	for name, c := range map[string]struct {
		all  []consensus.MemberStatus
		want string
	}{
		"the others are healthy":      {[]consensus.MemberStatus{self, ok("g2"), ok("g3"), ok("g4"), gone}, ": 1 more may be lost before"},
		"one more cannot write":       {[]consensus.MemberStatus{self, ok("g2"), ok("g3"), full, gone}, ": 0 more may be lost before"},
		"and another does not answer": {[]consensus.MemberStatus{self, ok("g2"), mute, full, gone}, ": 2 can write: nothing can be changed until 1 more can"},
	} {
		notes := formatSilentVoters([]consensus.SilentVoter{{ID: "g5", SilentFor: time.Minute}}, c.all, consensus.AutopilotConfig{})
		if len(notes) != 1 || !strings.HasPrefix(notes[0], "voter g5 had no contact for 1m0s"+c.want) {
			t.Errorf("%s: %q, want %q", name, notes, c.want)
		}
	}
}
