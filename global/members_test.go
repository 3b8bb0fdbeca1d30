package global

import (
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestMembersAndArchiveThroughTheAdminInterface transfers leadership, saves the state, changes the spec and restores
// it.
func TestMembersAndArchiveThroughTheAdminInterface(t *testing.T) {
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
	if _, err := c.RemoveMember(t.Context(), "g9", ""); err == nil || !strings.Contains(err.Error(), "no member") {
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
