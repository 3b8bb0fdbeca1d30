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

// issueShortLived loads certificates of id with the given lifetime, from a directory in which the next call may renew
// them.
func (w *testNetwork) issueShortLived(id identity.ID, dir string, life time.Duration) *identity.Certs {
	w.t.Helper()
	id.TrustDomain = "test.example"
	files, err := w.ca.IssueCert(id, dir, life)
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := identity.LoadCerts(files, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// A session ends when the certificate with which it began expires, that of the child or that of the parent.
func TestSessionEndsWithCertificate(t *testing.T) {
	for _, side := range []string{"child", "parent"} {
		runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
			parent, child := w.newCerts(gatewayID("g1")), w.newCerts(localID("a", "l2"))
			if side == "child" {
				child = w.issueShortLived(localID("a", "l2"), w.dir+"/brief", 10*time.Minute)
			} else {
				parent = w.issueShortLived(gatewayID("g1"), w.dir+"/brief", 10*time.Minute)
			}
			ends := time.Now().Add(10 * time.Minute)
			g := w.startParentWith(parent, w.attachHost(1), nil)
			c := w.startChild(w.newChild(2, func(c *ChildConfig) { c.Certs = child }, 1))
			time.Sleep(time.Until(ends) - 10*time.Second)
			if !c.Sessions()[0].Connected {
				t.Errorf("%s: the session ended before its certificate", side)
			}
			time.Sleep(20 * time.Second)
			if c.Sessions()[0].Connected || len(g.Children()) != 0 || w.log.countLines("session ends with the peer's certificate") == 0 {
				t.Errorf("%s: the session outlives its certificate", side)
			}
			w.stopAll(c, g)
		})
	}
}

// Certificates that are replaced before they expire cost no session: the child opens a new one before the old one
// ends.
func TestCertificateRotationKeepsSession(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		life := 6 * time.Minute
		child := w.issueShortLived(localID("a", "l2"), w.dir+"/brief", life)
		g := w.startParent(1, w.attachHost(1), nil)
		c := w.startChild(w.newChild(2, func(c *ChildConfig) { c.Certs = child }, 1))
		for range 6 {
			time.Sleep(life / 2)
			w.issueShortLived(localID("a", "l2"), w.dir+"/brief", life)
			if err := child.Reload(); err != nil {
				t.Fatal(err)
			}
			if state, _ := g.childState(pathL2); state != capacity.Fresh {
				t.Errorf("the child is %v", state)
			}
		}
		if g.countLosses() != 0 || w.log.countLines("session ends with") != 0 || w.log.countLines("uplink down") != 0 {
			t.Errorf("%d losses:\n%s", g.countLosses(), strings.Join(w.log.lines, ""))
		}
		w.stopAll(c, g)
	})
}

// The reason of a refusal reaches the child, its log, and the pages of both ends; after a change of the rule it is
// gone.
func TestRefusalReasonIsShownAtBothEnds(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		const why = "zone a is not in the spec"
		var allowed atomic.Bool
		g := w.startParent(1, w.attachHost(1), func(c *ParentConfig) {
			c.CheckScope = func(identity.ID) error {
				if allowed.Load() {
					return nil
				}
				return errors.New(why)
			}
		})
		c := w.startChild(w.newChild(2, nil, 1))
		time.Sleep(30 * time.Second)
		if s := c.Sessions()[0]; s.Connected || s.Err == nil || !strings.Contains(s.Err.Error(), why) {
			t.Errorf("session %+v", s)
		}
		if w.log.countLines("uplink refused by the parent") != 1 || w.log.countLines("uplink peer refused") != 1 {
			t.Errorf("logged:\n%s", strings.Join(w.log.lines, ""))
		}
		page := DescribeSessions("g1", g.Parent, nil)
		if len(page.Children) != 1 || page.Children[0].State != admin.UplinkRefused || page.Children[0].Error != why {
			t.Errorf("page %+v", page.Children)
		}
		if page := DescribeSessions("l2", nil, c); !strings.Contains(page.Parents[0].Error, why) {
			t.Errorf("page %+v", page.Parents)
		}
		if g.countLosses() != 0 {
			t.Error("a child that was never there is lost")
		}
		allowed.Store(true)
		time.Sleep(10 * time.Second)
		if page := DescribeSessions("g1", g.Parent, nil); len(page.Children) != 1 || page.Children[0].State != "connected" {
			t.Errorf("page %+v", page.Children)
		}
		w.stopAll(c, g)
	})
}

// A rule that changes between the first check of a hello and the registration of the session still applies to it:
// RecheckSessions did not see the session, so acceptHello checks again.
func TestScopeChangeDuringHelloRefusesChild(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		var calls atomic.Int64
		g := w.startParent(1, w.attachHost(1), func(c *ParentConfig) {
			c.CheckScope = func(identity.ID) error {
				if calls.Add(1) == 1 {
					return nil
				}
				return errors.New("no longer allowed")
			}
		})
		c := w.startChild(w.newChild(2, nil, 1))
		time.Sleep(2 * time.Second)
		if c.Sessions()[0].Connected || len(g.Children()) != 0 || g.countArrivals() != 0 {
			t.Errorf("the session goes on after %d looks", calls.Load())
		}
		w.stopAll(c, g)
	})
}

// The refusals kept for operators are bounded, and the newest stay.
func TestRecentRefusalsAreBounded(t *testing.T) {
	var r refusalLog
	now := time.Unix(1000, 0)
	for i := range 3 * maxRecentRefusals {
		r.storeRecent(refusedPeer{peer: localID("a", "l"+string(rune('a'+i))), refusedAt: now.Add(time.Duration(i) * time.Second)})
	}
	if out := r.listRecent(now.Add(time.Minute)); len(out) != maxRecentRefusals || r.recent[localID("a", "la").String()].peer.Name != "" {
		t.Errorf("%d kept", len(out))
	}
	if out := r.listRecent(now.Add(time.Hour)); len(out) != 0 {
		t.Errorf("%d after an hour", len(out))
	}
}
