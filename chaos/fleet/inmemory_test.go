package fleet

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestFleetRunsInSynctestBubble starts a fleet, advances an hour, and sends a request from each location.
func TestFleetRunsInSynctestBubble(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p, err := RunInMemory(t.Context(), InMemoryConfig{Dir: dir, Layout: Layout{Globals: 3, Regions: 3, Workers: 2}, TTL: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for r := range 3 {
			for node := range 3 {
				a, err := p.QueryDNS(node, ClientAddr(r, 1), ServiceName)
				if err != nil || p.RegionOf(a.Addr) != r {
					t.Errorf("node %d sends region %d's client to %+v (%v)", node, r, a, err)
				}
			}
		}
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
