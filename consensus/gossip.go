package consensus

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/backoff"
	"github.com/spillway-lb/spillway/internal/identity"
)

// Gossip is what nodes exchange outside the log: small messages of which only the newest counts. They need neither a
// leader nor a quorum, and no write waits for them.
const (
	gossipInterval      = 250 * time.Millisecond
	gossipPeersInterval = time.Second     // between two checks of the membership
	gossipTimeout       = 2 * time.Second // to connect, or to deliver one message
	gossipIdleTimeout   = 10 * time.Second
	maxGossipBytes      = 256 << 10 // bytes of one message
	maxGossipConns      = 2         // connections from one peer: one that is closing and its successor
)

// gossiper exchanges gossip with the other members.
type gossiper struct {
	id        string
	members   func() []Member
	dialPeer  func(ctx context.Context, addr, alpn string) (net.Conn, error)
	message   func() []byte                  // nil: nothing is sent
	onMessage func(from string, body []byte) // nil: nothing is received
	contacts  *contactTimes
	conns     *connSet
	refusals  *refusalLog

	mu  sync.Mutex
	now chan struct{} // closed to send gossip now, then replaced
}

// gossipNow sends the next message at once instead of at the next interval.
func (g *gossiper) gossipNow() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.now)
	g.now = make(chan struct{})
}

func (g *gossiper) nowSignal() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

// runGossip keeps one gossipWith loop for each other member, until ctx ends.
func (g *gossiper) runGossip(ctx context.Context) {
	if g.message == nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	talks := map[string]context.CancelFunc{} // by address
	for ctx.Err() == nil {
		members, all := map[string]bool{}, g.members()
		g.contacts.retainMembers(all)
		for _, m := range all {
			if m.ID == g.id {
				continue
			}
			members[m.Addr] = true
			if talks[m.Addr] == nil {
				talk, cancel := context.WithCancel(ctx)
				talks[m.Addr] = cancel
				wg.Go(func() { g.gossipWith(talk, m.Addr) })
			}
		}
		for addr, end := range talks {
			if !members[addr] {
				end()
				delete(talks, addr)
			}
		}
		sleepFor(ctx, gossipPeersInterval)
	}
	for _, end := range talks {
		end()
	}
}

// gossipWith sends Config.GossipMessage to one member until ctx ends. A failed connection is opened again.
func (g *gossiper) gossipWith(ctx context.Context, addr string) {
	waits := backoff.Doubling{First: gossipInterval, Longest: 8 * gossipInterval}
	for ctx.Err() == nil {
		dial, cancel := context.WithTimeout(ctx, gossipTimeout)
		c, err := g.dialPeer(dial, addr, alpnGossip)
		cancel()
		if err == nil {
			g.sendGossip(ctx, c)
			_ = c.Close()
			waits.Reset()
		}
		sleepFor(ctx, waits.NextDelay())
	}
}

// sendGossip sends Config.GossipMessage over one connection until it breaks or ctx ends.
func (g *gossiper) sendGossip(ctx context.Context, c net.Conn) {
	t := time.NewTicker(gossipInterval)
	defer t.Stop()
	for {
		nudged := g.nowSignal()
		if c.SetWriteDeadline(time.Now().Add(gossipTimeout)) != nil || writeFrame(c, g.message()) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-nudged:
		}
	}
}

// receiveGossip reads the messages of a peer until its connection breaks or stays idle too long.
func (g *gossiper) receiveGossip(c *tls.Conn) {
	id, err := identity.PeerID(c.ConnectionState())
	if err != nil || g.onMessage == nil || !g.conns.claimSlot("gossip "+id.Name, maxGossipConns) {
		return
	}
	defer g.conns.releaseSlot("gossip " + id.Name)
	for {
		if c.SetReadDeadline(time.Now().Add(gossipIdleTimeout)) != nil {
			return
		}
		body, err := readFrame(c, maxGossipBytes)
		if err != nil {
			g.refusals.countRefusal(c.RemoteAddr().String(), err)
			return
		}
		g.contacts.recordContact(id.Name)
		g.onMessage(id.Name, body)
	}
}
