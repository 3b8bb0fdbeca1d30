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

// A prompt of 220 KB is in memory once while it is forwarded, not twice.
func TestLongPromptIsInMemoryOnce(t *testing.T) { checkPromptMemory(t, "large") }

// The same holds when the model's name is rewritten.
func TestLongPromptToAliasIsInMemoryOnce(t *testing.T) { checkPromptMemory(t, "roomiest") }

func checkPromptMemory(t *testing.T, asked string) {
	const size, many = 220_000, 40
	w := newWorld(t)
	w.changeDirective(func(d *uplink.Directive) {
		d.Spec = []byte(strings.NewReplacer("max_body: 100000", "max_body: 1000000",
			"aliases:\n", "aliases:\n  - name: roomiest\n    targets: [{model: large, weight: 1}]\n").Replace(worldSpec()))
	})
	g := w.startGateway("fra", nil)
	proceed := make(chan struct{})
	let := sync.OnceFunc(func() { close(proceed) })
	roomy := roomyModel("large")
	roomy.MaxContext, roomy.KVTotal, roomy.KVFree, roomy.Hardware[0].PrefillRate = 1<<20, 1<<30, 1<<30, 1e9
	l := w.startLocal(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) { <-proceed; replyCompletion(rw, r) }, roomy)
	t.Cleanup(let) // before the simulated zone closes, which waits for its handlers
	w.waitUntilServed(g, "large")
	body := `{"model":"` + asked + `","max_tokens":16,"messages":[{"role":"user","content":"` + strings.Repeat("word ", size/5) + `"}]}`
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // the second collection frees what sync.Pool has kept
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	answers := make(chan error, many)
	for range many {
		go func() { answers <- w.checkAnswer(g, clientCall{key: "key-acme", body: body}) }()
	}
	for range many { // all are in flight
		select {
		case b := <-l.bodies: // the simulated zone has each too, until its handler returns
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
	// The gateway's copy, that of the simulated zone (grown by doubling), and buffers are 2.4 to 2.6 prompts. A
	// second copy in the gateway would make it 3.4.
	t.Logf("%.0f KB for each prompt of %d KB, that of the stand-in below included", each/1000, size/1000)
	if each > 3.2*size {
		t.Errorf("%.0f KB are held for each prompt of %d KB, that of the stand-in below included", each/1000, size/1000)
	}
}

// checkAnswer sends a request, on any goroutine, and returns an error if the response is wrong.
func (w *testWorld) checkAnswer(g *regional.Gateway, c clientCall) error {
	resp, err := w.sendCall(context.Background(), g, c)
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
