package consensus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/network"
)

// The protocols of the one listener.
const (
	alpnRaft    = "spillway-raft/1"
	alpnPropose = "spillway-propose/1"
	alpnAside   = "spillway-aside/1"
)

const (
	handshakeTimeout = 5 * time.Second
	maxProposals     = 256 // under way from one node
	maxStreams       = 32  // raft streams from one peer: its pool, its pipelines, and those it lost track of
)

// errEvicted is logged once for each address whose connections are evicted.
var errEvicted = fmt.Errorf("more than %d connections without a certificate are open, so the oldest of the address that "+
	"has the most is closed: have a firewall admit only global nodes to raft.listen", maxHandshakes)

// listener accepts all protocols on one port and admits global nodes only.
type listener struct {
	ln      net.Listener
	tls     *tls.Config
	log     *slog.Logger
	refused *refusals
	conns   *conns
	streams chan net.Conn // to raft
	propose func(context.Context, *tls.Conn)
	hear    func(*tls.Conn)

	handshakes       handshakes
	handshakeTimeout time.Duration
}

// bind takes the port, and says who wanted it if somebody else has it.
func bind(nw network.Network, addr, node string) (net.Listener, error) {
	if nw != nil {
		return nw.Listen(addr)
	}
	ln, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listening for Raft of global node %s on %s: %w: stop the program that holds this port, or choose another for raft.listen", node, addr, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listening for Raft of global node %s: %w", node, err)
	}
	return ln, nil
}

func newListener(ln net.Listener, certs *identity.Certs, log *slog.Logger, r *refusals, c *conns, member func(identity.ID) error) *listener {
	return &listener{
		ln: ln, tls: serverTLS(certs, member), log: log, refused: r, conns: c,
		streams: make(chan net.Conn), handshakeTimeout: handshakeTimeout,
	}
}

// serverTLS picks the protocol by what the client offers, so that each handshake is judged for one protocol. Any global
// node may propose; only members speak Raft or tell what they hear.
func serverTLS(certs *identity.Certs, member func(identity.ID) error) *tls.Config {
	raft, propose, aside := certs.Server(alpnRaft, member), certs.Server(alpnPropose, globalOnly), certs.Server(alpnAside, member)
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			switch {
			case slices.Contains(h.SupportedProtos, alpnPropose):
				return propose.GetConfigForClient(h)
			case slices.Contains(h.SupportedProtos, alpnAside):
				return aside.GetConfigForClient(h)
			}
			return raft.GetConfigForClient(h)
		},
	}
}

func globalOnly(id identity.ID) error {
	if id.Role != identity.RoleGlobal {
		return fmt.Errorf("only global nodes take part in Raft, not role %s", id.Role)
	}
	return nil
}

// run accepts until ctx ends or the listener is closed, and returns when every handler has.
func (l *listener) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for delay := time.Duration(0); ctx.Err() == nil; {
		c, err := l.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, as a rule: wait for some to come back
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			l.log.Warn("accepting raft connection failed", "error", err)
			pause(ctx, delay)
			continue
		}
		delay = 0
		if old := l.handshakes.add(c); old != nil {
			_ = old.Close() // which ends its admit
			l.refused.add(old.RemoteAddr().String(), errEvicted)
		}
		wg.Go(func() { l.admit(ctx, c) })
	}
}

// admit takes the certificate of c's peer and passes c on by its protocol. Each protocol bounds the connections that one
// peer has.
func (l *listener) admit(ctx context.Context, c net.Conn) {
	defer l.handshakes.remove(c) // for the returns before the handshake ends
	t := tls.Server(c, l.tls)
	if !l.conns.add(t) {
		return
	}
	shake, cancel := context.WithTimeout(ctx, l.handshakeTimeout)
	err := t.HandshakeContext(shake)
	cancel()
	l.handshakes.remove(c)
	if err != nil {
		l.refused.add(c.RemoteAddr().String(), err)
		l.drop(t)
		return
	}
	switch t.ConnectionState().NegotiatedProtocol {
	case alpnPropose:
		l.admitProposal(ctx, t)
		l.drop(t)
	case alpnAside:
		l.hear(t)
		l.drop(t)
	default:
		l.handOver(ctx, t)
	}
}

// admitProposal has the proposal on t answered, unless its peer has too many under way.
func (l *listener) admitProposal(ctx context.Context, t *tls.Conn) {
	id, err := identity.PeerID(t.ConnectionState())
	if err != nil || !l.conns.claim("propose "+id.Name, maxProposals) {
		return
	}
	defer l.conns.release("propose " + id.Name)
	l.propose(ctx, t)
}

// handOver gives a stream to raft, if its peer has not got too many.
func (l *listener) handOver(ctx context.Context, t *tls.Conn) {
	id, err := identity.PeerID(t.ConnectionState())
	if err != nil || !l.conns.claim(id.Name, maxStreams) {
		l.drop(t)
		return
	}
	stream := &tracked{Conn: t, leave: func() {
		l.conns.release(id.Name)
		l.conns.remove(t)
	}}
	select {
	case l.streams <- stream:
	case <-ctx.Done():
		_ = stream.Close()
	}
}

func (l *listener) drop(t *tls.Conn) {
	_ = t.Close()
	l.conns.remove(t)
}

// pause waits for d or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
