package consensus

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
)

// What nodes tell each other outside the log: small statements, the newest of which counts. They need neither a leader
// nor a quorum, and no write waits for them.
const (
	asideEvery   = 250 * time.Millisecond
	membersEvery = time.Second     // between two looks at who takes part
	asideTimeout = 2 * time.Second // to connect, or to take one statement
	asideSilence = 10 * time.Second
	maxAside     = 256 << 10 // bytes of one statement
	maxAsides    = 2         // connections from one peer: one that is dying, and its successor
)

// Nudge has the next aside said now rather than in its turn.
func (n *Node) Nudge() {
	n.nudge.Lock()
	defer n.nudge.Unlock()
	close(n.nudged)
	n.nudged = make(chan struct{})
}

func (n *Node) nextNudge() <-chan struct{} {
	n.nudge.Lock()
	defer n.nudge.Unlock()
	return n.nudged
}

// converse talks to every other member for as long as it is one.
func (n *Node) converse() {
	if n.cfg.Aside == nil {
		return
	}
	talks := map[string]context.CancelFunc{} // by address
	for n.ctx.Err() == nil {
		members, all := map[string]bool{}, n.Members()
		n.heard.keep(all)
		for _, m := range all {
			if m.ID == n.id {
				continue
			}
			members[m.Addr] = true
			if talks[m.Addr] == nil {
				ctx, cancel := context.WithCancel(n.ctx)
				talks[m.Addr] = cancel
				n.wg.Go(func() { n.talk(ctx, m.Addr) })
			}
		}
		for addr, end := range talks {
			if !members[addr] {
				end()
				delete(talks, addr)
			}
		}
		pause(n.ctx, membersEvery)
	}
	for _, end := range talks {
		end()
	}
}

// talk tells one member what Aside says until ctx ends. A connection that fails is made anew.
func (n *Node) talk(ctx context.Context, addr string) {
	for delay := asideEvery; ctx.Err() == nil; delay = min(2*delay, 8*asideEvery) {
		dial, cancel := context.WithTimeout(ctx, asideTimeout)
		c, err := n.dialer.dial(dial, addr, alpnAside)
		cancel()
		if err == nil {
			n.tell(ctx, c)
			_ = c.Close()
			delay = asideEvery
		}
		pause(ctx, delay)
	}
}

// tell says Aside over one connection until it breaks or ctx ends.
func (n *Node) tell(ctx context.Context, c net.Conn) {
	t := time.NewTicker(asideEvery)
	defer t.Stop()
	for {
		nudged := n.nextNudge()
		if c.SetWriteDeadline(time.Now().Add(asideTimeout)) != nil || writeFrame(c, n.cfg.Aside()) != nil {
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

// hear takes what a peer says until its connection breaks or falls silent.
func (n *Node) hear(c *tls.Conn) {
	id, err := identity.PeerID(c.ConnectionState())
	if err != nil || n.cfg.OnAside == nil || !n.conns.claim("aside "+id.Name, maxAsides) {
		return
	}
	defer n.conns.release("aside " + id.Name)
	for {
		if c.SetReadDeadline(time.Now().Add(asideSilence)) != nil {
			return
		}
		body, err := readFrame(c, maxAside)
		if err != nil {
			n.refused.add(c.RemoteAddr().String(), err)
			return
		}
		n.heard.note(id.Name)
		n.cfg.OnAside(id.Name, body)
	}
}
