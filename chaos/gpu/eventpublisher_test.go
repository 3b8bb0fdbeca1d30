package gpu

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local/engine/kvevents"
)

// cacheFollower tracks the cached blocks by a stream of events.
type cacheFollower struct {
	mu   sync.Mutex
	refs map[uint64]int
	gaps int
}

func (m *cacheFollower) OnBatch(b *kvevents.EventBatch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range b.Events {
		for _, h := range e.Hashes {
			if e.Kind == kvevents.BlocksStored {
				m.refs[h]++
			} else if m.refs[h]--; m.refs[h] == 0 {
				delete(m.refs, h)
			}
		}
		if e.Kind == kvevents.BlocksCleared {
			clear(m.refs)
		}
	}
	m.gaps += b.Ignored
}

func (m *cacheFollower) OnState(kvevents.StreamState) {}
func (m *cacheFollower) OnRestart()                   {}

func (m *cacheFollower) OnGap() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gaps++
}

func (m *cacheFollower) OnMalformed() { m.OnGap() }

func (m *cacheFollower) countBlocks() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.refs)
}

// TestPublishedEventsMatchTheCache: a follower of the events, from the start or later by a replay, has the exact set
// of cached blocks, in both encodings, while the cache overflows and is reset.
func TestPublishedEventsMatchTheCache(t *testing.T) {
	for _, arrays := range []bool{false, true} {
		s, c := startServer(t, Config{GPU: "L4", Speed: 100, KVEvents: "127.0.0.1:0", KVReplay: "127.0.0.1:0", KVArrays: arrays})
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		join := func() *cacheFollower {
			m := &cacheFollower{refs: map[uint64]int{}}
			cfg := kvevents.Config{EventsURL: s.KVEventsURL(), ReplayURL: s.KVReplayURL(), Dial: (&net.Dialer{}).DialContext, Log: slog.New(slog.DiscardHandler)}
			wg.Go(func() { kvevents.FollowEvents(ctx, cfg, m) })
			return m
		}
		cached := func() int {
			s.driver.mu.Lock()
			defer s.driver.mu.Unlock()
			return cachedBlocks(s.driver.engine.cache)
		}
		agree := func(when string, ms ...*cacheFollower) {
			t.Helper()
			for _, m := range ms {
				testkit.EventuallySucceeds(t, testkit.WaitBound, when, func() error {
					if published, held := m.countBlocks(), cached(); published != held || m.gaps > 0 {
						return fmt.Errorf("%d blocks are published and %d cached, %d gaps", published, held, m.gaps)
					}
					return nil
				})
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
		if first.countBlocks() == 0 || first.countBlocks() > s.Gauges().KVBlocks {
			t.Fatalf("%d blocks", first.countBlocks())
		}
		second := join()
		agree("joined late", first, second)
		testkit.Eventually(t, "no block is in use", func() bool { return s.Gauges().KVUsed == 0 })
		resp, err := c.Post(c.url+"/reset_prefix_cache", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		agree("after a reset", first, second)
		if first.countBlocks() != 0 {
			t.Fatalf("%d blocks after a reset", first.countBlocks())
		}
		cancel()
		wg.Wait()
	}
}
