package fault

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// tcpListener listens where the dialers of one or more links connect, while their common target does: a connection to a
// dead node is refused, as it would be without a relay.
type tcpListener struct {
	files   *fleet.Files
	listen  netip.AddrPort
	forward netip.AddrPort
	links   []*relayLink
	up      *listenTable
	log     *slog.Logger

	done     chan struct{}
	closing  sync.Once
	mu       sync.Mutex
	listener net.Listener // nil while the target does not listen
}

func newTCPListener(p *fleet.Files, listen, forward netip.AddrPort, up *listenTable, log *slog.Logger) *tcpListener {
	return &tcpListener{files: p, listen: listen, forward: forward, up: up, log: log, done: make(chan struct{})}
}

func (g *tcpListener) run() {
	for {
		ln, ok := g.listenWhenUp()
		if !ok {
			return
		}
		for {
			c, err := ln.Accept()
			if err != nil {
				break // closed by close or closeUntilUp
			}
			go g.serveConn(c.(*net.TCPConn))
		}
	}
}

// listenWhenUp waits until the target listens, and listens too. ok is false when the relay stops.
func (g *tcpListener) listenWhenUp() (ln net.Listener, ok bool) {
	tick := time.NewTicker(targetPoll)
	defer tick.Stop()
	for {
		if g.up.isListening(g.forward) {
			ln, err := net.Listen("tcp", g.listen.String())
			if err == nil {
				g.mu.Lock()
				g.listener = ln
				g.mu.Unlock()
				select {
				case <-g.done:
					ln.Close()
					return nil, false
				default:
				}
				return ln, true
			}
			g.log.Error("relay cannot listen", "address", g.listen.String(), "error", err)
		}
		select {
		case <-g.done:
			return nil, false
		case <-tick.C:
		}
	}
}

// closeUntilUp closes the listener; run opens it again when the target listens.
func (g *tcpListener) closeUntilUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.listener != nil {
		g.listener.Close()
		g.listener = nil
	}
}

func (g *tcpListener) close() {
	g.closing.Do(func() { close(g.done) })
	g.closeUntilUp()
}

func (g *tcpListener) serveConn(near *net.TCPConn) {
	l := g.links[0]
	if len(g.links) > 1 {
		var ids []string
		for _, k := range g.links {
			ids = append(ids, k.From)
		}
		if i := findSocketOwner(g.files, addrPortOf(near.RemoteAddr()), addrPortOf(near.LocalAddr()), ids); i >= 0 {
			l = g.links[i]
		}
	}
	dial := func() (*net.TCPConn, error) {
		c, err := net.DialTimeout("tcp", g.forward.String(), dialTimeout)
		if err != nil {
			if errors.Is(err, syscall.ECONNREFUSED) {
				g.closeUntilUp()
			}
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}
	l.carryConn(near, dial, g.done)
}

func addrPortOf(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := t.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}
