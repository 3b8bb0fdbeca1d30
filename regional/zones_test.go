package regional_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/timed"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// TestZoneRemovedFromSpecIsDropped: the session of the zone's local instance ends promptly, and the zone is not a
// candidate any more, not even as a last resort.
func TestZoneRemovedFromSpecIsDropped(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	gone := w.startLocal(g, "fra", "fra-b", replyCompletion, roomyModel("large"))
	stays := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	w.waitUntilServed(g, "large")
	large := func() int {
		res, _ := w.getAnswer(g, clientCall{key: "key-acme", body: `{"model":"large","messages":[]}`})
		return res.StatusCode
	}
	if status := large(); status != 200 {
		t.Fatalf("before, a request is answered with %d", status)
	}
	begun := time.Now()
	w.changeDirective(func(d *uplink.Directive) {
		d.SpecVersion++
		d.Spec = []byte(strings.Replace(worldSpec(), "zones: [fra-a, fra-b]", "zones: [fra-a]", 1))
	})
	testkit.Eventually(t, "the zone's session ends", func() bool { return !gone.child.Sessions()[0].Connected })
	timed.AssertWithin(t, "the end of the session of a zone that left the spec", time.Since(begun), 1500*time.Millisecond)
	testkit.Eventually(t, "its model is served no more", func() bool { return large() == 503 })
	if !stays.child.Sessions()[0].Connected {
		t.Error("the other zone's session ended as well")
	}
}
