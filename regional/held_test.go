package regional_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
)

// A prompt of 220 KB is in memory once while it is passed on, and not twice.
func TestLongPromptsAreHeldOnce(t *testing.T) { promptsAreHeldOnce(t, "large") }

// Nor is one of which the model is written anew.
func TestLongPromptsToAnAliasAreHeldOnce(t *testing.T) { promptsAreHeldOnce(t, "roomiest") }

func promptsAreHeldOnce(t *testing.T, asked string) {
	const size, many = 220_000, 40
	w := newWorld(t)
	w.change(func(d *uplink.Directive) {
		d.Spec = []byte(strings.NewReplacer("max_body: 100000", "max_body: 1000000",
			"aliases:\n", "aliases:\n  - name: roomiest\n    targets: [{model: large, weight: 1}]\n").Replace(worldSpec()))
	})
	g := w.gateway("fra", nil)
	proceed := make(chan struct{})
	let := sync.OnceFunc(func() { close(proceed) })
	roomy := small("large")
	roomy.MaxContext, roomy.KVTotal, roomy.KVFree, roomy.Hardware[0].PrefillRate = 1<<20, 1<<30, 1<<30, 1e9
	l := w.local(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) { <-proceed; reply(rw, r) }, roomy)
	t.Cleanup(let) // before the stand-in is closed, which waits for its handlers
	w.served(g, "large")
	body := `{"model":"` + asked + `","max_tokens":16,"messages":[{"role":"user","content":"` + strings.Repeat("word ", size/5) + `"}]}`
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools have kept goes with the second
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	answers := make(chan error, many)
	for range many {
		go func() { answers <- w.wellAnswered(g, call{key: "key-acme", body: body}) }()
	}
	for range many { // all are at work
		select {
		case b := <-l.bodies: // the stand-in below has each too, until its handler is over
			if want := strings.Replace(body, asked, "large", 1); string(b) != want {
				t.Fatalf("of %d bytes came %d, beginning with %q", len(want), len(b), b[:40])
			}
		case err := <-answers:
			t.Fatalf("an answer before the stand-in gave one: %v", err)
		}
	}
	each := float64(heap()-before) / many
	let()
	for range many {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	// The gateway's copy, that of the stand-in, which has grown by doubling, and buffers: 2.4 to 2.6 prompts. With a second copy in
	// the gateway there would be 3.4.
	t.Logf("%.0f KB for each prompt of %d KB, that of the stand-in below included", each/1000, size/1000)
	if each > 3.2*size {
		t.Errorf("%.0f KB are held for each prompt of %d KB, that of the stand-in below included", each/1000, size/1000)
	}
}

// wellAnswered asks, on any goroutine, and says what is wrong with the answer.
func (w *world) wellAnswered(g *regional.Gateway, c call) error {
	resp, err := w.do(context.Background(), g, c)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %s", resp.StatusCode, text)
	}
	return err
}
