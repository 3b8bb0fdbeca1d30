package consensus_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/identity"
)

// TestGossipNeedsNoLeader: gossip of one node reaches the others also when only two of three are up. A restarted node
// is received again, and messages of a non-voter are refused.
func TestGossipNeedsNoLeader(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	received := map[string]string{} // "receiver<sender"
	c := newTestCluster(t, false, func(cfg *consensus.Config) {
		id := cfg.ID
		cfg.GossipMessage = func() []byte { return []byte("I am " + id) }
		cfg.OnGossip = func(from string, body []byte) {
			mu.Lock()
			defer mu.Unlock()
			received[id+"<"+from] = string(body)
		}
	})
	all := func(n int) bool {
		mu.Lock()
		defer mu.Unlock()
		for pair, body := range received {
			if _, from, _ := strings.Cut(pair, "<"); body != "I am "+from {
				t.Errorf("%s received %q", pair, body)
			}
		}
		return len(received) == n
	}
	c.waitUntil("every node receives gossip of every other", func() bool { return all(6) })
	c.stopNode(0)
	c.stopNode(1)
	mu.Lock()
	clear(received)
	mu.Unlock()
	c.startNode(1)
	c.waitUntil("two that are up hear each other", func() bool { return all(2) })
	c.nodes[2].GossipNow()

	stranger := c.issueCerts(identity.ID{TrustDomain: testDomain, Role: identity.RoleGlobal, Name: "g9"})
	checkConnRefused(t, c.peers[2].Addr, stranger, "spillway-aside/1")
	gateway := c.issueCerts(identity.ID{TrustDomain: testDomain, Role: identity.RoleGateway, Region: "r", Name: "gw"})
	checkConnRefused(t, c.peers[2].Addr, gateway, "spillway-aside/1")
}
