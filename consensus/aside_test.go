package consensus_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/identity"
)

// TestAsidesNeedNoLeader: what one node says aside reaches the others also when only two of three are up, a restarted
// node is heard again, and who is no voter is not listened to.
func TestAsidesNeedNoLeader(t *testing.T) {
	var mu sync.Mutex
	heard := map[string]string{} // "listener<speaker"
	c := newCluster(t, false, func(cfg *consensus.Config) {
		id := cfg.ID
		cfg.Aside = func() []byte { return []byte("I am " + id) }
		cfg.OnAside = func(from string, body []byte) {
			mu.Lock()
			defer mu.Unlock()
			heard[id+"<"+from] = string(body)
		}
	})
	all := func(n int) bool {
		mu.Lock()
		defer mu.Unlock()
		for pair, said := range heard {
			if _, from, _ := strings.Cut(pair, "<"); said != "I am "+from {
				t.Errorf("%s heard %q", pair, said)
			}
		}
		return len(heard) == n
	}
	c.eventually("everybody hears everybody", func() bool { return all(6) })
	c.stop(0)
	c.stop(1)
	mu.Lock()
	clear(heard)
	mu.Unlock()
	c.start(1)
	c.eventually("two that are up hear each other", func() bool { return all(2) })
	c.nodes[2].Nudge()

	stranger := c.cert(identity.ID{TrustDomain: domain, Role: identity.RoleGlobal, Name: "g9"})
	knock(t, c.peers[2].Addr, stranger, "spillway-aside/1")
	gateway := c.cert(identity.ID{TrustDomain: domain, Role: identity.RoleGateway, Region: "r", Name: "gw"})
	knock(t, c.peers[2].Addr, gateway, "spillway-aside/1")
}
