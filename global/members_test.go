package global

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
)

// TestMembersAndArchiveThroughTheAdminInterface hands leadership on, saves the state, changes the spec and restores it.
func TestMembersAndArchiveThroughTheAdminInterface(t *testing.T) {
	p := newPlanet(t)
	p.settle()
	lead := p.leader()
	next := p.nodes[0]
	if next == lead {
		next = p.nodes[1]
	}
	c := p.admin(p.nodes[2])
	if _, err := c.Lead(t.Context(), admin.LeaderRequest{To: next.cfg.Name}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "the node named leads", next.IsLeader)
	if _, err := c.RemoveMember(t.Context(), "g9", ""); err == nil || !strings.Contains(err.Error(), "no member") {
		t.Errorf("removing a stranger: %v", err)
	}
	saved, err := c.Archive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(specText(), "interval: 200ms", "interval: 300ms", 1)
	if _, err := c.Apply(t.Context(), admin.ApplyRequest{Name: "s", Text: text}); err != nil {
		t.Fatal(err)
	}
	// A busy machine may depose the leader at any time: who leads is looked up again, and a try that met no leader repeated.
	var version uint64
	eventually(t, 20*time.Second, "the leader restores, and a follower refuses to", func() bool {
		leads := p.leader()
		term := leads.node.Status().Term
		same := func() bool { return leads.IsLeader() && leads.node.Status().Term == term }
		for _, s := range p.nodes {
			if s == leads {
				continue
			}
			if _, err := p.admin(s).Restore(t.Context(), admin.ArchiveRequest{Data: saved.Data}); err == nil || !strings.Contains(err.Error(), "only the leader") {
				if same() {
					t.Fatalf("restoring at a follower: %v", err)
				}
				return false
			}
		}
		a, err := p.admin(leads).Restore(t.Context(), admin.ArchiveRequest{Data: saved.Data, Reason: "test"})
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
	eventually(t, 5*time.Second, "every node answers from the restored spec and follows its directives", func() bool {
		for _, s := range p.alive() {
			if v := s.view.Load(); v.version != version || v.spec.Steering.Interval.String() != "200ms" {
				return false
			}
		}
		for _, g := range p.gates {
			if d := g.directive.Load(); d == nil || d.SpecVersion != version {
				return false
			}
		}
		return true
	})
}
