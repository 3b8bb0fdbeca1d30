package uplink

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

var errTooManyMessages = errors.New("it sends more messages than a child needs to")

var errTooManyChildren = errors.New("this parent has its maximum number of children")

// serveConn accepts a child's hello and keeps its session until the connection ends.
func (p *Parent) serveConn(ctx context.Context, conn *quic.Conn) {
	id, err := identity.PeerID(conn.ConnectionState().TLS)
	if err != nil {
		conn.CloseWithError(codeRefused, "no identity")
		return
	}
	s, err := p.acceptHello(ctx, conn, id)
	if err != nil {
		p.rejectConn(conn, id, err)
		return
	}
	defer closeAtCertExpiry(conn, p.log)()
	var work sync.WaitGroup
	for _, loop := range []func() error{s.readDatagrams, s.readSnapshots, s.sendDirectives} {
		work.Go(func() {
			if err := loop(); isMalformed(err) || errors.Is(err, errTooManyMessages) {
				p.rejectConn(conn, id, err)
			}
		})
	}
	work.Wait()
	p.endSession(ctx, s)
}

// closeAtCertExpiry closes a connection when the peer's certificate expires: a session must not outlive it. The
// caller calls stop when the connection is over.
func closeAtCertExpiry(conn *quic.Conn, log *slog.Logger) (stop func()) {
	certs := conn.ConnectionState().TLS.PeerCertificates
	if len(certs) == 0 {
		return func() {}
	}
	leaf := certs[0]
	t := time.AfterFunc(time.Until(leaf.NotAfter), func() {
		if conn.Context().Err() != nil {
			return
		}
		id, _ := identity.PeerID(conn.ConnectionState().TLS) // it was parsed before without an error
		log.Warn("uplink session ends with the peer's certificate: renew the certificate of the peer", "peer", id.String(), "expired", leaf.NotAfter)
		conn.CloseWithError(codeShutdown, "the certificate of this session has ended")
	})
	return func() { t.Stop() }
}

// rejectConn closes a connection; refusals of correct peers by a full or stopping parent are not counted.
func (p *Parent) rejectConn(conn *quic.Conn, id identity.ID, err error) {
	code := codeRefused
	switch {
	case isMalformed(err):
		code = codeMalformed
	case errors.Is(err, errVersion):
		code = codeVersion
	case errors.Is(err, errTooManyMessages):
		code = codeFlood
	case errors.Is(err, errTooManyChildren):
		code = codeFull
	case conn.Context().Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		conn.CloseWithError(codeShutdown, "no greeting")
		return
	}
	conn.CloseWithError(code, err.Error()[:min(len(err.Error()), 200)])
	reason := refusalReason(err)
	if reason != reasonFull {
		p.handshakes.recordFailure(handshakeSource(conn.RemoteAddr()), time.Now())
	}
	p.refusals.recordRefusal(id.String(), reason, err.Error())
	p.refusals.storeRecent(refusedPeer{peer: id, addr: conn.RemoteAddr().String(), reason: reason, message: err.Error(), refusedAt: time.Now()})
}

// acceptHello reads the Hello, registers the session in place of an older one of the same path, and answers.
func (p *Parent) acceptHello(ctx context.Context, conn *quic.Conn, id identity.ID) (*parentEnd, error) {
	soon, cancel := context.WithTimeout(conn.Context(), handshakeTimeout)
	defer cancel()
	control, err := conn.AcceptStream(soon)
	if err != nil {
		return nil, err
	}
	control.SetDeadline(time.Now().Add(handshakeTimeout))
	var h uplinkpb.Hello
	if err := readFrame(control, &h); err != nil {
		return nil, err
	}
	v, err := agreeVersion(h.Version, h.MinVersion)
	if err != nil {
		return nil, err
	}
	path, err := checkHello(&h, id)
	if err != nil {
		return nil, err
	}
	if err := checkBoot(h.Boot, time.Now()); err != nil {
		return nil, err
	}
	s := &parentEnd{
		parent: p, conn: conn, version: v, id: id, path: path, endpoint: h.Endpoint, startedAt: time.Now(),
		directiveDue: make(chan struct{}, 1), ended: make(chan struct{}), inbox: summaryInbox{path: path, boot: h.Boot},
	}
	if err := p.checkScope(id); err != nil {
		return nil, err
	}
	held, err := p.registerSession(s)
	if err != nil {
		return nil, err
	}
	err = p.checkScope(id) // again: a RecheckSessions between the handshake and registerSession did not see this session
	if err == nil {
		err = writeFrame(control, &uplinkpb.Welcome{Version: v, HeldBoot: held, Boot: p.boot})
	}
	if err != nil {
		p.endSession(ctx, s)
		return nil, err
	}
	return s, nil
}

// registerSession makes s the session of its path and waits until the previous one, if any, is over, so that no event
// of the old session comes after one of the new.
func (p *Parent) registerSession(s *parentEnd) (held uint64, err error) {
	p.mu.Lock()
	old := p.sessions[s.path]
	if old == nil && len(p.sessions) >= p.cfg.MaxChildren {
		p.mu.Unlock()
		return 0, errTooManyChildren
	}
	p.sessions[s.path] = s
	p.sessionCount.Store(int64(len(p.sessions)))
	held = p.lastBoots[s.path]
	p.mu.Unlock()
	if old != nil {
		old.conn.CloseWithError(codeReplaced, "a newer session of the same path")
		<-old.ended
	}
	p.logConnected(s)
	return held, nil
}

// logConnected logs a session: each one after a logged loss, and otherwise one a minute per child, because two
// instances that share a certificate replace each other continuously.
func (p *Parent) logConnected(s *parentEnd) {
	child := s.id.String()
	left, ok := p.connectedLog.AllowLine("connected", child, time.Now())
	if _, back := p.lostLog.ResolveSubject(child); ok || back {
		p.log.Info("uplink child connected", "child", child, "address", s.conn.RemoteAddr().String(), telemetry.KeySuppressed, left)
	}
}

// endSession ends a session. It calls OnLost unless a newer session has the path or the parent itself is stopping.
func (p *Parent) endSession(ctx context.Context, s *parentEnd) {
	defer close(s.ended)
	p.foldTraffic(s)
	if !p.isCurrent(s) {
		return
	}
	if ctx.Err() == nil {
		if left, ok := p.lostLog.AllowLine("lost", s.id.String(), time.Now()); ok {
			p.log.Warn("uplink child lost", "child", s.id.String(), telemetry.ErrorAttr(context.Cause(s.conn.Context())), telemetry.KeySuppressed, left)
		}
		if p.cfg.OnLost != nil {
			p.cfg.OnLost(s.id, s.path)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions[s.path] == s {
		delete(p.sessions, s.path)
		p.sessionCount.Store(int64(len(p.sessions)))
	}
}

// foldTraffic adds the traffic of an ended session to the sums.
func (p *Parent) foldTraffic(s *parentEnd) {
	t := s.counters.readTraffic(s.conn, s.version)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pastTraffic.addTraffic(&t)
	s.trafficFolded = true
}

func (p *Parent) isCurrent(s *parentEnd) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[s.path] == s
}

// recordBoot keeps the newest boot of a path, so that a child whose clock was set back can be informed. It returns
// true when the boot is below that of an earlier session.
func (p *Parent) recordBoot(path capacity.Path, boot uint64) (lower bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.lastBoots[path]; !known && len(p.lastBoots) >= 2*p.cfg.MaxChildren {
		for gone := range p.lastBoots {
			if p.sessions[gone] == nil {
				delete(p.lastBoots, gone)
				break
			}
		}
	}
	lower = boot < p.lastBoots[path]
	p.lastBoots[path] = boot
	return lower
}
