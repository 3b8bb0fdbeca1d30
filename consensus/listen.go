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

	"github.com/spillway-lb/spillway/internal/backoff"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/netif"
)

// The protocols of the listener.
const (
	alpnRaft    = "spillway-raft/1"
	alpnPropose = "spillway-propose/1"
	alpnGossip  = "spillway-aside/1"
)

const (
	handshakeTimeout = 5 * time.Second
	maxProposals     = 256 // in progress from one node
	maxRaftStreams   = 32  // raft streams from one peer: its pool, its pipelines, and those it lost track of
)

// errEvicted is logged once for each address whose connections are evicted.
var errEvicted = fmt.Errorf("more than %d connections without a certificate are open, so the oldest of the address that "+
	"has the most is closed: have a firewall admit only global nodes to raft.listen", maxHandshakes)

// raftListener accepts all protocols on one port and admits global nodes only.
type raftListener struct {
	ln            net.Listener
	tls           *tls.Config
	log           *slog.Logger
	refusals      *refusalLog
	conns         *connSet
	streams       chan net.Conn // to raft
	serveProposal func(context.Context, *tls.Conn)
	receiveGossip func(*tls.Conn)

	handshakes       pendingHandshakes
	handshakeTimeout time.Duration
}

// listenRaft opens the port. If another process holds it, the error names the node that wanted it.
func listenRaft(nw netif.HostNetwork, addr, node string) (net.Listener, error) {
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

func newRaftListener(ln net.Listener, certs *identity.Certs, log *slog.Logger, r *refusalLog, c *connSet, member func(identity.ID) error) *raftListener {
	return &raftListener{
		ln: ln, tls: serverTLS(certs, member), log: log, refusals: r, conns: c,
		streams: make(chan net.Conn), handshakeTimeout: handshakeTimeout,
	}
}

// serverTLS picks the protocol by the client's ALPN offer, so that each handshake is authorized for one protocol. Any
// global node may propose; only members may use Raft and gossip.
func serverTLS(certs *identity.Certs, member func(identity.ID) error) *tls.Config {
	raft, propose, aside := certs.ServerTLS(alpnRaft, member), certs.ServerTLS(alpnPropose, requireGlobalRole), certs.ServerTLS(alpnGossip, member)
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			switch {
			case slices.Contains(h.SupportedProtos, alpnPropose):
				return propose.GetConfigForClient(h)
			case slices.Contains(h.SupportedProtos, alpnGossip):
				return aside.GetConfigForClient(h)
			}
			return raft.GetConfigForClient(h)
		},
	}
}

func requireGlobalRole(id identity.ID) error {
	if id.Role != identity.RoleGlobal {
		return fmt.Errorf("only global nodes take part in Raft, not role %s", id.Role)
	}
	return nil
}

// acceptLoop accepts connections until ctx ends or the listener is closed, and returns when every handler has
// returned.
func (l *raftListener) acceptLoop(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	waits := backoff.Doubling{First: 5 * time.Millisecond, Longest: time.Second}
	for ctx.Err() == nil {
		c, err := l.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // usually out of file descriptors: wait until some are free
			l.log.Warn("accepting raft connection failed", "error", err)
			sleepFor(ctx, waits.NextDelay())
			continue
		}
		waits.Reset()
		if old := l.handshakes.addConn(c); old != nil {
			_ = old.Close() // which ends its admitConn
			l.refusals.countRefusal(old.RemoteAddr().String(), errEvicted)
		}
		wg.Go(func() { l.admitConn(ctx, c) })
	}
}

// admitConn completes the handshake of c and passes c on by its protocol. Each protocol bounds the connections of one
// peer.
func (l *raftListener) admitConn(ctx context.Context, c net.Conn) {
	defer l.handshakes.removeConn(c) // for the returns before the handshake ends
	t := tls.Server(c, l.tls)
	if !l.conns.addConn(t) {
		return
	}
	shake, cancel := context.WithTimeout(ctx, l.handshakeTimeout)
	err := t.HandshakeContext(shake)
	cancel()
	l.handshakes.removeConn(c)
	if err != nil {
		l.refusals.countRefusal(c.RemoteAddr().String(), err)
		l.closeConn(t)
		return
	}
	switch t.ConnectionState().NegotiatedProtocol {
	case alpnPropose:
		l.admitProposal(ctx, t)
		l.closeConn(t)
	case alpnGossip:
		l.receiveGossip(t)
		l.closeConn(t)
	default:
		l.passToRaft(ctx, t)
	}
}

// admitProposal serves the proposal on t, unless its peer has too many in progress.
func (l *raftListener) admitProposal(ctx context.Context, t *tls.Conn) {
	id, err := identity.PeerID(t.ConnectionState())
	if err != nil || !l.conns.claimSlot("propose "+id.Name, maxProposals) {
		return
	}
	defer l.conns.releaseSlot("propose " + id.Name)
	l.serveProposal(ctx, t)
}

// passToRaft passes a stream to raft, unless its peer has too many.
func (l *raftListener) passToRaft(ctx context.Context, t *tls.Conn) {
	id, err := identity.PeerID(t.ConnectionState())
	if err != nil || !l.conns.claimSlot(id.Name, maxRaftStreams) {
		l.closeConn(t)
		return
	}
	stream := &trackedConn{Conn: t, onClose: func() {
		l.conns.releaseSlot(id.Name)
		l.conns.removeConn(t)
	}}
	select {
	case l.streams <- stream:
	case <-ctx.Done():
		_ = stream.Close()
	}
}

func (l *raftListener) closeConn(t *tls.Conn) {
	_ = t.Close()
	l.conns.removeConn(t)
}

// sleepFor waits for d or until ctx ends.
func sleepFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
