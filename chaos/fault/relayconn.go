package fault

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of a relay's TCP connections.
const (
	// maxConns bounds the connections of one link; a further one is reset.
	maxConns = 4096
	// chunkBytes is how much is read at once, and queuedChunks how much of it may be under way: 2 MiB each direction, the
	// bandwidth-delay product of 80 Mbit/s at 200 ms.
	chunkBytes   = 16 << 10
	queuedChunks = 128
	dialTimeout  = 3 * time.Second
	// targetPoll is how often a target that refused is looked for.
	targetPoll = 30 * time.Millisecond
)

// relayConn is one connection through a link. near is the dialer's side, far the listener's.
type relayConn struct {
	link     *relayLink
	near     *net.TCPConn
	lost     atomic.Bool // a black hole took bytes of it
	halfOpen atomic.Bool // its far side was closed and near does not know it
	done     chan struct{}
	closing  sync.Once

	mu  sync.Mutex
	far *net.TCPConn
}

// resetBoth ends a connection with RST on both sides.
func (c *relayConn) resetBoth() {
	c.closing.Do(func() { close(c.done) })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, side := range []*net.TCPConn{c.near, c.far} {
		if side != nil {
			side.SetLinger(0)
			side.Close()
		}
	}
}

// closeBoth ends a connection whose two directions have ended.
func (c *relayConn) closeBoth() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.near.Close()
	if c.far != nil {
		c.far.Close()
	}
}

// closeFar closes the far side only.
func (c *relayConn) closeFar() {
	c.halfOpen.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.far != nil {
		c.far.Close()
	}
}

// waitForPath waits while a new connection gets no answer. It reports false if the connection is to be ended.
func (c *relayConn) waitForPath(stop <-chan struct{}) bool {
	for {
		forward, changed := c.link.forward.loadEffect()
		back, alsoChanged := c.link.back.loadEffect()
		switch {
		case forward.reset || back.reset:
			return false
		case forward.halfOpen || back.halfOpen:
			c.halfOpen.Store(true)
			return true
		case !forward.cut && !back.cut: // SYN and SYN-ACK pass
			return true
		}
		select {
		case <-changed:
		case <-alsoChanged:
		case <-c.done:
			return false
		case <-stop:
			return false
		}
	}
}

// chunk is a piece of a connection under way. An empty one with eof is the end of the stream.
type chunk struct {
	due  time.Time
	data []byte
	eof  bool
}

// runPipe carries one direction of a connection. notBefore is when its first bytes may leave.
func (c *relayConn) runPipe(d *direction, from, to *net.TCPConn, notBefore time.Time) {
	queue := make(chan chunk, queuedChunks)
	go c.readPipe(d, from, queue, notBefore)
	for {
		var k chunk
		select {
		case k = <-queue:
		case <-c.done:
			return
		}
		if !c.waitUntil(k.due) || !c.waitUncut(d) {
			return
		}
		if e, _ := d.loadEffect(); (e.discard || c.halfOpen.Load()) && !k.eof {
			c.lost.Store(true)
			continue
		}
		if late := time.Since(k.due); len(k.data) > 0 && late < time.Second { // longer: it waited for a partition to end
			c.link.lateness.addLateness(late)
		}
		switch {
		case to == nil || c.halfOpen.Load():
			if k.eof {
				return
			}
		case k.eof:
			to.CloseWrite()
			return
		default:
			if _, err := to.Write(k.data); err != nil {
				if !c.halfOpen.Load() {
					c.resetBoth()
				}
				return
			}
		}
	}
}

// readPipe reads one direction and schedules it.
func (c *relayConn) readPipe(d *direction, from *net.TCPConn, queue chan<- chunk, notBefore time.Time) {
	buf := make([]byte, chunkBytes)
	last := notBefore
	for {
		n, err := from.Read(buf)
		now := time.Now()
		if n > 0 {
			d.mu.Lock()
			at, wait := d.shaper.sendSegments(now, n, last, d.rng)
			d.mu.Unlock()
			last = at
			select {
			case queue <- chunk{due: at, data: append([]byte(nil), buf[:n]...)}:
			case <-c.done:
				return
			}
			if wait > 0 && !c.waitUntil(now.Add(wait)) {
				return
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) && !c.halfOpen.Load() { // reset, or closed by the other direction
			c.resetBoth()
			return
		}
		at := now.Add(d.currentDelay())
		if at.Before(last) {
			at = last
		}
		select {
		case queue <- chunk{due: at, eof: true}:
		case <-c.done:
		}
		return
	}
}

// waitUntil waits for a time; false: the connection has ended.
func (c *relayConn) waitUntil(at time.Time) bool {
	d := time.Until(at)
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.done:
		return false
	}
}

// waitUncut waits while the direction is cut; false: the connection has ended.
func (c *relayConn) waitUncut(d *direction) bool {
	for {
		e, changed := d.loadEffect()
		if !e.cut {
			return true
		}
		select {
		case <-changed:
		case <-c.done:
			return false
		}
	}
}
