package gpu

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/engine/kvevents"
)

// mirror keeps what a stream of events says is cached.
type mirror struct {
	mu   sync.Mutex
	held map[uint64]int
	gaps int
}

func (m *mirror) Batch(b *kvevents.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range b.Events {
		for _, h := range e.Hashes {
			if e.Kind == kvevents.Stored {
				m.held[h]++
			} else if m.held[h]--; m.held[h] == 0 {
				delete(m.held, h)
			}
		}
		if e.Kind == kvevents.Cleared {
			clear(m.held)
		}
	}
	m.gaps += b.Ignored
}

func (m *mirror) State(kvevents.State) {}
func (m *mirror) Restart()             {}

func (m *mirror) Gap() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gaps++
}

func (m *mirror) Garbled() { m.Gap() }

func (m *mirror) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.held)
}

// TestPublishedEventsAreTheCache: whoever follows the events, from the beginning or later by the replay, knows exactly
// which blocks are cached, in both forms, while the cache overflows and is reset.
func TestPublishedEventsAreTheCache(t *testing.T) {
	for _, arrays := range []bool{false, true} {
		s, c := serve(t, Config{GPU: "L4", Speed: 100, KVEvents: "127.0.0.1:0", KVReplay: "127.0.0.1:0", KVArrays: arrays})
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		join := func() *mirror {
			m := &mirror{held: map[uint64]int{}}
			cfg := kvevents.Config{Events: s.KVEvents(), Replay: s.KVReplay(), Dial: (&net.Dialer{}).DialContext, Log: slog.New(slog.DiscardHandler)}
			wg.Go(func() { kvevents.Follow(ctx, cfg, m) })
			return m
		}
		cached := func() int {
			s.driver.mu.Lock()
			defer s.driver.mu.Unlock()
			return cachedBlocks(s.driver.engine.pool)
		}
		agree := func(when string, ms ...*mirror) {
			t.Helper()
			deadline := time.Now().Add(20 * time.Second)
			for _, m := range ms {
				for m.len() != cached() || m.gaps > 0 {
					if time.Now().After(deadline) {
						t.Fatalf("%s: %d blocks are told of and %d cached, %d gaps", when, m.len(), cached(), m.gaps)
					}
					time.Sleep(5 * time.Millisecond)
				}
			}
		}
		ask := func(name string, n int) {
			resp, err := c.Post(c.url+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(`{"model":"Llama-3.1-8B","max_tokens":40,"prompt":%q}`, strings.Repeat(name, n))))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		first := join()
		for i := range 2 + s.Gauges().KVBlocks*BlockTokens/7000 {
			ask(fmt.Sprintf("%08d", i), 3500)
		}
		agree("after an overflow", first)
		if first.len() == 0 || first.len() > s.Gauges().KVBlocks {
			t.Fatalf("%d blocks", first.len())
		}
		second := join()
		agree("joined late", first, second)
		for s.Gauges().KVUsed > 0 {
			time.Sleep(time.Millisecond)
		}
		resp, err := c.Post(c.url+"/reset_prefix_cache", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		agree("after a reset", first, second)
		if first.len() != 0 {
			t.Fatalf("%d blocks after a reset", first.len())
		}
		cancel()
		wg.Wait()
	}
}
