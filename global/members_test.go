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
	if _, err := p.admin(lead).Restore(t.Context(), admin.ArchiveRequest{Data: saved.Data}); lead != next && (err == nil || !strings.Contains(err.Error(), "only the leader")) {
		t.Errorf("restoring at a follower: %v", err)
	}
	a, err := p.admin(next).Restore(t.Context(), admin.ArchiveRequest{Data: saved.Data, Reason: "test"})
	if err != nil || a.Version != 3 {
		t.Fatalf("restoring: %+v, %v", a, err)
	}
	eventually(t, 5*time.Second, "every node answers from the restored spec and follows its directives", func() bool {
		for _, s := range p.alive() {
			if v := s.view.Load(); v.version != 3 || v.spec.Steering.Interval.String() != "200ms" {
				return false
			}
		}
		for _, g := range p.gates {
			if d := g.directive.Load(); d == nil || d.SpecVersion != 3 {
				return false
			}
		}
		return true
	})
}
