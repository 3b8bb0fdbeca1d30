package consensus

import (
	"context"
	"crypto/tls"
	"net"
	"time"

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

// GossipNow sends the next message at once instead of at the next interval.
func (n *Node) GossipNow() {
	n.gossipNowMu.Lock()
	defer n.gossipNowMu.Unlock()
	close(n.gossipNow)
	n.gossipNow = make(chan struct{})
}

func (n *Node) gossipNowSignal() <-chan struct{} {
	n.gossipNowMu.Lock()
	defer n.gossipNowMu.Unlock()
	return n.gossipNow
}

// runGossip keeps one gossipWith loop for each other member.
func (n *Node) runGossip() {
	if n.cfg.GossipMessage == nil {
		return
	}
	talks := map[string]context.CancelFunc{} // by address
	for n.ctx.Err() == nil {
		members, all := map[string]bool{}, n.Members()
		n.contacts.retainMembers(all)
		for _, m := range all {
			if m.ID == n.id {
				continue
			}
			members[m.Addr] = true
			if talks[m.Addr] == nil {
				ctx, cancel := context.WithCancel(n.ctx)
				talks[m.Addr] = cancel
				n.wg.Go(func() { n.gossipWith(ctx, m.Addr) })
			}
		}
		for addr, end := range talks {
			if !members[addr] {
				end()
				delete(talks, addr)
			}
		}
		sleepFor(n.ctx, gossipPeersInterval)
	}
	for _, end := range talks {
		end()
	}
}

// gossipWith sends Config.GossipMessage to one member until ctx ends. A failed connection is opened again.
func (n *Node) gossipWith(ctx context.Context, addr string) {
	for delay := gossipInterval; ctx.Err() == nil; delay = min(2*delay, 8*gossipInterval) {
		dial, cancel := context.WithTimeout(ctx, gossipTimeout)
		c, err := n.dialer.dialPeer(dial, addr, alpnGossip)
		cancel()
		if err == nil {
			n.sendGossip(ctx, c)
			_ = c.Close()
			delay = gossipInterval
		}
		sleepFor(ctx, delay)
	}
}

// sendGossip sends Config.GossipMessage over one connection until it breaks or ctx ends.
func (n *Node) sendGossip(ctx context.Context, c net.Conn) {
	t := time.NewTicker(gossipInterval)
	defer t.Stop()
	for {
		nudged := n.gossipNowSignal()
		if c.SetWriteDeadline(time.Now().Add(gossipTimeout)) != nil || writeFrame(c, n.cfg.GossipMessage()) != nil {
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
func (n *Node) receiveGossip(c *tls.Conn) {
	id, err := identity.PeerID(c.ConnectionState())
	if err != nil || n.cfg.OnGossip == nil || !n.conns.claimSlot("aside "+id.Name, maxGossipConns) {
		return
	}
	defer n.conns.releaseSlot("aside " + id.Name)
	for {
		if c.SetReadDeadline(time.Now().Add(gossipIdleTimeout)) != nil {
			return
		}
		body, err := readFrame(c, maxGossipBytes)
		if err != nil {
			n.refusals.countRefusal(c.RemoteAddr().String(), err)
			return
		}
		n.contacts.recordContact(id.Name)
		n.cfg.OnGossip(id.Name, body)
	}
}
