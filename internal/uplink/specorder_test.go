package uplink

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
)

// TestDirectiveReaderMatchesWriterOverLossyLink sends directives over a link that loses and reorders in both
// directions, with specs that change and change back. Every directive at the child has exactly the spec that the
// parent meant, and a spec is left out once it is confirmed.
func TestDirectiveReaderMatchesWriterOverLossyLink(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var parent directiveWriter
		var child directiveReader
		var down [][]byte
		var up []uint64
		held, meant := uint64(0), map[uint64]string{}
		take := func(b []byte) {
			order, _, _, err := decodeDirective(b)
			if err != nil {
				t.Fatal(err)
			}
			brought, d, err := child.readDirective(b)
			if err != nil {
				t.Fatalf("directive %d: %v", order, err)
			}
			if d != nil && string(d.Spec) != meant[order] {
				t.Fatalf("directive %d has spec %q, meant %q", order, d.Spec, meant[order])
			}
			if brought != 0 {
				up = append(up, brought)
			}
		}
		order := uint64(0)
		send := func(spec string) []byte {
			order++
			meant[order] = spec
			b, _, err := parent.encodeForChild(order, held, &Directive{Spec: []byte(spec)})
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "event") {
			case 0, 1, 2:
				down = append(down, send(rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "spec")))
			case 3, 4:
				if len(down) > 0 {
					i := rapid.IntRange(0, len(down)-1).Draw(t, "which")
					take(down[i])
					down = slices.Delete(down, i, i+1)
				}
			case 5:
				if len(up) > 0 {
					i := rapid.IntRange(0, len(up)-1).Draw(t, "answer")
					held = up[i]
					up = slices.Delete(up, i, i+1)
				}
			case 6:
				if rapid.Bool().Draw(t, "lose down") {
					down = nil
				} else {
					up = nil
				}
			}
		}
		up = nil
		for range 2 { // a good link
			take(send("last"))
			if len(up) > 0 {
				held, up = up[len(up)-1], nil
			}
		}
		if _, specOf, d, err := decodeDirective(send("last")); err != nil || specOf == 0 || len(d.Spec) > 0 {
			t.Fatalf("a confirmed spec is sent again: spec of %d, %v", specOf, err)
		}
	})
}

func TestUnknownSpecOrderIsRefused(t *testing.T) {
	b, _, err := encodeDirective(2, 1, &Directive{SpecVersion: 3})
	if err != nil {
		t.Fatal(err)
	}
	var o directiveReader
	if _, d, err := o.readDirective(b); err == nil {
		t.Fatalf("a directive without its spec was taken: %+v", d)
	}
}

// TestUnchangedSpecIsSentOnce: a large spec crosses the link once, however often directives are due, and each
// directive has it.
func TestUnchangedSpecIsSentOnce(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		var version atomic.Uint64
		version.Store(1)
		specs := map[uint64][]byte{1: make([]byte, 1<<20), 2: []byte("small")}
		g := w.startParent(1, w.attachHost(1), func(c *ParentConfig) {
			c.BuildDirective = func(capacity.Path) *Directive {
				v := version.Load()
				return &Directive{SpecVersion: v, Spec: specs[v]}
			}
		})
		var got []string
		c := w.startChild(w.newChild(2, func(c *ChildConfig) {
			c.OnDirective = func(_ identity.ID, d *Directive) { got = append(got, fmt.Sprint(d.SpecVersion, len(d.Spec))) }
		}, 1))
		time.Sleep(3 * time.Second)
		before := w.router.countDelivered()
		wakes := func(n int) {
			for range n {
				g.PushDirectives()
				time.Sleep(500 * time.Millisecond)
			}
		}
		wakes(20)
		if sent := w.router.countDelivered() - before; sent > 100_000 {
			t.Errorf("%d bytes went for 20 directives with a spec that was there", sent)
		}
		version.Store(2)
		wakes(1)
		version.Store(1)
		wakes(2)
		w.stopAll(c, g) // after this, got has no writer
		want := append(slices.Repeat([]string{"1 1048576"}, len(got)-3), "2 5", "1 1048576", "1 1048576")
		if len(got) < 23 || !slices.Equal(got, want) {
			t.Errorf("directives were %v", got)
		}
	})
}
