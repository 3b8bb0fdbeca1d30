package world

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSessionsKeepTheZoneThatHoldsTheirPrefix: conversations of 4,000 tokens and more that name no session, through any of
// two gateways, go on in the zone that has computed them: the gateway that sent them there knows, and the other one learns
// of it from the zone's sketch. (Without either, three in ten of the later turns go elsewhere.)
func TestSessionsKeepTheZoneThatHoldsTheirPrefix(t *testing.T) {
	dir := t.TempDir()
	const sessions, turns = 16, 6
	synctest.Test(t, func(t *testing.T) {
		p, err := New(t.Context(), Config{Dir: dir, Globals: 1, Regions: Three(4)[:1], Gateways: 2, Zones: 2, TTL: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		c := p.Caller()
		var mu sync.Mutex
		var all sync.WaitGroup
		kept, moved := 0, 0
		var first, later []time.Duration
		for s := range sessions {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(s), 5))
				time.Sleep(time.Duration(rng.IntN(30_000)) * time.Millisecond)
				text := words(rng, 16<<10)
				zone := ""
				for turn := range turns {
					r := c.Post(context.Background(), Client(0, s), GatewayHostOf(0, rng.IntN(2)), text, 8)
					mu.Lock()
					switch {
					case r.Err != nil || r.Status != 200:
						t.Errorf("session %d turn %d: %+v", s, turn, r)
					case zone == "":
						first = append(first, r.First)
					case zone == r.Zone:
						kept++
						later = append(later, r.First)
					default:
						moved++
						later = append(later, r.First)
					}
					zone = r.Zone
					mu.Unlock()
					text += words(rng, 1<<10)
					time.Sleep(time.Duration(4000+rng.IntN(2000)) * time.Millisecond)
				}
			})
		}
		all.Wait()
		t.Logf("of %d later turns %d kept their zone and %d did not; first turns began after %s, later ones after %s on average",
			kept+moved, kept, moved, mean(first), mean(later))
		if kept < 5*moved {
			t.Errorf("%d turns kept their zone, %d did not", kept, moved)
		}
		c.Close()
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// words is text that no other begins like.
func words(rng *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%07d ", rng.IntN(1e7))
	}
	return b.String()
}

func mean(ds []time.Duration) (m time.Duration) {
	for _, d := range ds {
		m += d / time.Duration(len(ds))
	}
	return m.Round(time.Millisecond)
}
