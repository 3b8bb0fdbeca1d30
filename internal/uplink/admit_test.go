package uplink

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
)

// brief loads certificates of id that end after so long, into a folder that the next call may renew them in.
func (w *planet) brief(id identity.ID, dir string, life time.Duration) *identity.Certs {
	w.t.Helper()
	id.TrustDomain = "test.example"
	files, err := w.ca.Issue(id, dir, life)
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := identity.Load(files, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// A session ends with the certificate that it began with, of the child or of the parent.
func TestSessionEndsWithCertificate(t *testing.T) {
	for _, side := range []string{"child", "parent"} {
		onPlanet(t, func(t *testing.T, w *planet) {
			parent, child := w.certs(gateway("g1")), w.certs(local("a", "l2"))
			if side == "child" {
				child = w.brief(local("a", "l2"), w.dir+"/brief", 10*time.Minute)
			} else {
				parent = w.brief(gateway("g1"), w.dir+"/brief", 10*time.Minute)
			}
			ends := time.Now().Add(10 * time.Minute)
			g := w.parentWith(parent, w.host(1), nil)
			c := w.start(w.child(2, func(c *ChildConfig) { c.Certs = child }, 1))
			time.Sleep(time.Until(ends) - 10*time.Second)
			if !c.Sessions()[0].Connected {
				t.Errorf("%s: the session ended before its certificate", side)
			}
			time.Sleep(20 * time.Second)
			if c.Sessions()[0].Connected || len(g.Children()) != 0 || w.log.count("session ends with the peer's certificate") == 0 {
				t.Errorf("%s: the session outlives its certificate", side)
			}
			w.stop(c, g)
		})
	}
}

// Certificates that are replaced before they end cost no session: the child has a new one before the old one ends.
func TestRotationKeepsTheSession(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		life := 6 * time.Minute
		child := w.brief(local("a", "l2"), w.dir+"/brief", life)
		g := w.parent(1, w.host(1), nil)
		c := w.start(w.child(2, func(c *ChildConfig) { c.Certs = child }, 1))
		for range 6 {
			time.Sleep(life / 2)
			w.brief(local("a", "l2"), w.dir+"/brief", life)
			if err := child.Reload(); err != nil {
				t.Fatal(err)
			}
			if state, _ := g.state(l2); state != capacity.Fresh {
				t.Errorf("the child is %v", state)
			}
		}
		if g.losses() != 0 || w.log.count("session ends with") != 0 || w.log.count("uplink down") != 0 {
			t.Errorf("%d losses:\n%s", g.losses(), strings.Join(w.log.lines, ""))
		}
		w.stop(c, g)
	})
}

// The reason of a refusal reaches the child, its log, and the pages of both ends; after a change of the rule it is gone.
func TestRefusalSaysWhyOnBothSides(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		const why = "zone a is not in the spec"
		var allowed atomic.Bool
		g := w.parent(1, w.host(1), func(c *ParentConfig) {
			c.Scope = func(identity.ID) error {
				if allowed.Load() {
					return nil
				}
				return errors.New(why)
			}
		})
		c := w.start(w.child(2, nil, 1))
		time.Sleep(30 * time.Second)
		if s := c.Sessions()[0]; s.Connected || s.Err == nil || !strings.Contains(s.Err.Error(), why) {
			t.Errorf("session %+v", s)
		}
		if w.log.count("uplink refused by the parent") != 1 || w.log.count("uplink peer refused") != 1 {
			t.Errorf("logged:\n%s", strings.Join(w.log.lines, ""))
		}
		page := Page("g1", g.Parent, nil)
		if len(page.Children) != 1 || page.Children[0].State != admin.UplinkRefused || page.Children[0].Error != why {
			t.Errorf("page %+v", page.Children)
		}
		if page := Page("l2", nil, c); !strings.Contains(page.Parents[0].Error, why) {
			t.Errorf("page %+v", page.Parents)
		}
		if g.losses() != 0 {
			t.Error("a child that was never there is lost")
		}
		allowed.Store(true)
		time.Sleep(10 * time.Second)
		if page := Page("g1", g.Parent, nil); len(page.Children) != 1 || page.Children[0].State != "connected" {
			t.Errorf("page %+v", page.Children)
		}
		w.stop(c, g)
	})
}

// A rule that changes between the first look at a greeting and the entry of the session still applies to it: Recheck did
// not see the session, so the greeting looks again.
func TestRuleThatChangesDuringGreeting(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		var calls atomic.Int64
		g := w.parent(1, w.host(1), func(c *ParentConfig) {
			c.Scope = func(identity.ID) error {
				if calls.Add(1) == 1 {
					return nil
				}
				return errors.New("no longer allowed")
			}
		})
		c := w.start(w.child(2, nil, 1))
		time.Sleep(2 * time.Second)
		if c.Sessions()[0].Connected || len(g.Children()) != 0 || g.arrivals() != 0 {
			t.Errorf("the session goes on after %d looks", calls.Load())
		}
		w.stop(c, g)
	})
}

// The refusals that are kept for operators are bounded, and the newest stay.
func TestKeptRefusalsAreBounded(t *testing.T) {
	var r refusals
	now := time.Unix(1000, 0)
	for i := range 3 * maxRecent {
		r.keep(refusal{peer: local("a", "l"+string(rune('a'+i))), at: now.Add(time.Duration(i) * time.Second)})
	}
	if out := r.kept(now.Add(time.Minute)); len(out) != maxRecent || r.recent[local("a", "la").String()].peer.Name != "" {
		t.Errorf("%d kept", len(out))
	}
	if out := r.kept(now.Add(time.Hour)); len(out) != 0 {
		t.Errorf("%d after an hour", len(out))
	}
}
