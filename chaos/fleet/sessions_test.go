package fleet

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

// TestSessionsStayInZoneHoldingTheirPrefix: conversations of 4,000 and more tokens without a session name, sent
// through either of two gateways, stay in the zone that computed them: the gateway that sent them there has recorded
// it, and the other learns it from the zone's sketch. (Without both, three in ten of the later turns go elsewhere.)
func TestSessionsStayInZoneHoldingTheirPrefix(t *testing.T) {
	dir := t.TempDir()
	const sessions, turns = 16, 6
	synctest.Test(t, func(t *testing.T) {
		p, err := RunInMemory(t.Context(), InMemoryConfig{Dir: dir, Layout: Layout{Globals: 1, Regions: 1, Gateways: 2, Zones: 2, Workers: 2}, TTL: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		c := p.NewHTTPCaller()
		var mu sync.Mutex
		var all sync.WaitGroup
		kept, moved := 0, 0
		var first, later []time.Duration
		for s := range sessions {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(s), 5))
				time.Sleep(time.Duration(rng.IntN(30_000)) * time.Millisecond)
				text := randomText(rng, 16<<10)
				zone := ""
				for turn := range turns {
					r := c.PostCompletion(context.Background(), ClientAddr(0, s), GatewayHostOf(0, rng.IntN(2)), text, 8)
					mu.Lock()
					switch {
					case r.Err != nil || r.Status != 200:
						t.Errorf("session %d turn %d: %+v", s, turn, r)
					case zone == "":
						first = append(first, r.FirstByteAfter)
					case zone == r.Zone:
						kept++
						later = append(later, r.FirstByteAfter)
					default:
						moved++
						later = append(later, r.FirstByteAfter)
					}
					zone = r.Zone
					mu.Unlock()
					text += randomText(rng, 1<<10)
					time.Sleep(time.Duration(4000+rng.IntN(2000)) * time.Millisecond)
				}
			})
		}
		all.Wait()
		t.Logf("of %d later turns %d kept their zone and %d did not; first turns began after %s, later ones after %s on average",
			kept+moved, kept, moved, meanDuration(first), meanDuration(later))
		if kept < 5*moved {
			t.Errorf("%d turns kept their zone, %d did not", kept, moved)
		}
		c.Close()
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// randomText is random text with a unique beginning.
func randomText(rng *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%07d ", rng.IntN(1e7))
	}
	return b.String()
}

func meanDuration(ds []time.Duration) (m time.Duration) {
	for _, d := range ds {
		m += d / time.Duration(len(ds))
	}
	return m.Round(time.Millisecond)
}
