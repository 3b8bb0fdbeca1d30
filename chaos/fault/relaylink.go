package fault

import (
	"net"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// relayLink is one link with its two directions.
type relayLink struct {
	fleet.Link
	forward, back *direction
	lateness      *latenessMeter

	mu    sync.Mutex
	conns map[*relayConn]bool
}

// changeEffects puts the effects of a link in force and resets the connections that cannot live with the change.
func (l *relayLink) changeEffects(forward, back effect) {
	oldForward, _ := l.forward.loadEffect()
	oldBack, _ := l.back.loadEffect()
	l.forward.storeEffect(forward)
	l.back.storeEffect(back)
	if forward.reset || back.reset {
		l.resetConns(func(*relayConn) bool { return true })
		return
	}
	if forward.halfOpen || back.halfOpen {
		l.closeFarSides()
		return
	}
	if oldForward.discard && !forward.discard || oldBack.discard && !back.discard {
		l.resetConns(func(c *relayConn) bool { return c.lost.Load() }) // they miss bytes
	}
	if oldForward.halfOpen || oldBack.halfOpen {
		l.resetConns(func(c *relayConn) bool { return c.halfOpen.Load() }) // the listener knows nothing of them
	}
}

// carryConn carries one connection until it ends. The dialer's kernel has its handshake already: the round trip that it
// would have taken delays the first bytes.
func (l *relayLink) carryConn(near *net.TCPConn, dial func() (*net.TCPConn, error), stop <-chan struct{}) {
	c := &relayConn{link: l, near: near, done: make(chan struct{})}
	near.SetNoDelay(true)
	if !l.addConn(c) {
		c.resetBoth()
		return
	}
	defer l.removeConn(c)
	defer c.resetBoth()
	opened := time.Now()
	if !c.waitForPath(stop) {
		return
	}
	if !c.halfOpen.Load() {
		far, err := dial()
		if err != nil {
			return
		}
		far.SetNoDelay(true)
		c.mu.Lock()
		c.far = far
		c.mu.Unlock()
		if c.halfOpen.Load() { // since the dial began
			far.Close()
		}
	}
	handshake := opened.Add(l.forward.currentDelay() + l.back.currentDelay())
	var pipes sync.WaitGroup
	pipes.Go(func() { c.runPipe(l.forward, near, c.far, handshake) })
	if c.far != nil {
		pipes.Go(func() { c.runPipe(l.back, c.far, near, time.Time{}) })
	}
	ended := make(chan struct{})
	go func() { pipes.Wait(); close(ended) }()
	select {
	case <-ended:
		c.closeBoth()
	case <-stop:
	}
}

func (l *relayLink) addConn(c *relayConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= maxConns {
		return false
	}
	l.conns[c] = true
	return true
}

func (l *relayLink) removeConn(c *relayConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// selectConns lists the connections for which a condition holds.
func (l *relayLink) selectConns(which func(*relayConn) bool) (out []*relayConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if which(c) {
			out = append(out, c)
		}
	}
	return out
}

func (l *relayLink) resetConns(which func(*relayConn) bool) {
	for _, c := range l.selectConns(which) {
		c.resetBoth()
	}
}

func (l *relayLink) closeFarSides() {
	for _, c := range l.selectConns(func(*relayConn) bool { return true }) {
		c.closeFar()
	}
}
