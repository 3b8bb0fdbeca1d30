package regional_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/uplink"
)

// TestAZoneLeavesTheSpec: its local's session ends promptly, and it is no candidate any more, not even as a last resort.
func TestAZoneLeavesTheSpec(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	gone := w.local(g, "fra", "fra-b", reply, small("large"))
	stays := w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")
	w.served(g, "large")
	large := func() int {
		res, _ := w.ask(g, call{key: "key-acme", body: `{"model":"large","messages":[]}`})
		return res.StatusCode
	}
	if status := large(); status != 200 {
		t.Fatalf("before, a request is answered with %d", status)
	}
	begun := time.Now()
	w.change(func(d *uplink.Directive) {
		d.SpecVersion++
		d.Spec = []byte(strings.Replace(worldSpec(), "zones: [fra-a, fra-b]", "zones: [fra-a]", 1))
	})
	eventually(t, "the zone's session ends", func() bool { return !gone.child.Sessions()[0].Connected })
	if took := time.Since(begun); took > 1500*time.Millisecond {
		t.Errorf("the session of a zone that left the spec ended after %v", took)
	}
	eventually(t, "its model is served no more", func() bool { return large() == 503 })
	if !stays.child.Sessions()[0].Connected {
		t.Error("the other zone's session ended as well")
	}
}
