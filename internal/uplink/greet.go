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

var errFlood = errors.New("it sends more than any child has to say")

var errFull = errors.New("this parent has all the children it takes")

// serve greets a child and keeps its session until the connection ends.
func (p *Parent) serve(ctx context.Context, conn *quic.Conn) {
	id, err := identity.PeerID(conn.ConnectionState().TLS)
	if err != nil {
		conn.CloseWithError(codeRefused, "no identity")
		return
	}
	s, err := p.greet(ctx, conn, id)
	if err != nil {
		p.reject(conn, id, err)
		return
	}
	defer endWithCertificate(conn, p.log)()
	var work sync.WaitGroup
	for _, loop := range []func() error{s.takeDatagrams, s.takeSnapshots, s.pushDirectives} {
		work.Go(func() {
			if err := loop(); isRubbish(err) || errors.Is(err, errFlood) {
				p.reject(conn, id, err)
			}
		})
	}
	work.Wait()
	p.leave(ctx, s)
}

// endWithCertificate closes a connection when the peer's certificate ends: a session must not outlive it. The caller calls
// stop when the connection is over.
func endWithCertificate(conn *quic.Conn, log *slog.Logger) (stop func()) {
	certs := conn.ConnectionState().TLS.PeerCertificates
	if len(certs) == 0 {
		return func() {}
	}
	leaf := certs[0]
	t := time.AfterFunc(time.Until(leaf.NotAfter), func() {
		if conn.Context().Err() != nil {
			return
		}
		id, _ := identity.PeerID(conn.ConnectionState().TLS) // it was read before
		log.Warn("uplink session ends with the peer's certificate: renew the certificate of the peer", "peer", id.String(), "expired", leaf.NotAfter)
		conn.CloseWithError(codeBye, "the certificate of this session has ended")
	})
	return func() { t.Stop() }
}

// reject closes a connection; refusals of honest peers by a full or stopping parent are not counted.
func (p *Parent) reject(conn *quic.Conn, id identity.ID, err error) {
	code := codeRefused
	switch {
	case isRubbish(err):
		code = codeRubbish
	case errors.Is(err, errVersion):
		code = codeVersion
	case errors.Is(err, errFlood):
		code = codeFlood
	case errors.Is(err, errFull):
		code = codeFull
	case conn.Context().Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		conn.CloseWithError(codeBye, "no greeting")
		return
	}
	conn.CloseWithError(code, err.Error()[:min(len(err.Error()), 200)])
	reason := reasonOf(err)
	if reason != reasonFull {
		p.penance.offend(sourceOf(conn.RemoteAddr()), time.Now())
	}
	p.refused.refuse(id.String(), reason, err.Error())
	p.refused.keep(refusal{peer: id, addr: conn.RemoteAddr().String(), reason: reason, why: err.Error(), at: time.Now()})
}

// greet reads the Hello, enters the session in place of an older one of the same path, and answers.
func (p *Parent) greet(ctx context.Context, conn *quic.Conn, id identity.ID) (*intake, error) {
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
	v, err := agreeOn(h.Version, h.MinVersion)
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
	s := &intake{
		parent: p, conn: conn, version: v, id: id, path: path, endpoint: h.Endpoint, since: time.Now(),
		push: make(chan struct{}, 1), end: make(chan struct{}), in: inbox{path: path, boot: h.Boot},
	}
	if err := p.admit(id); err != nil {
		return nil, err
	}
	held, err := p.enter(s)
	if err != nil {
		return nil, err
	}
	err = p.admit(id) // again: a Recheck between the handshake and enter did not see this session
	if err == nil {
		err = writeFrame(control, &uplinkpb.Welcome{Version: v, HeldBoot: held, Boot: p.boot})
	}
	if err != nil {
		p.leave(ctx, s)
		return nil, err
	}
	return s, nil
}

// enter makes s its path's session and waits until the one before it, if any, is over, so that no word about the old
// session can come after one about the new.
func (p *Parent) enter(s *intake) (held uint64, err error) {
	p.mu.Lock()
	old := p.sessions[s.path]
	if old == nil && len(p.sessions) >= p.cfg.MaxChildren {
		p.mu.Unlock()
		return 0, errFull
	}
	p.sessions[s.path] = s
	p.entered.Store(int64(len(p.sessions)))
	held = p.held[s.path]
	p.mu.Unlock()
	if old != nil {
		old.conn.CloseWithError(codeReplaced, "a newer session of the same path")
		<-old.end
	}
	p.arrived(s)
	return held, nil
}

// arrived logs a session: each that follows a loss that was logged, and otherwise one a minute of each child, for two
// instances that share a certificate replace each other for ever.
func (p *Parent) arrived(s *intake) {
	child := s.id.String()
	left, ok := p.arrivals.Pass("connected", child, time.Now())
	if _, back := p.losses.Back(child); ok || back {
		p.log.Info("uplink child connected", "child", child, "address", s.conn.RemoteAddr().String(), telemetry.KeyLeftOut, left)
	}
}

// leave ends a session. It tells OnLost unless a newer session has taken the path or the parent itself is stopping.
func (p *Parent) leave(ctx context.Context, s *intake) {
	defer close(s.end)
	p.bury(s)
	if !p.owns(s) {
		return
	}
	if ctx.Err() == nil {
		if left, ok := p.losses.Pass("lost", s.id.String(), time.Now()); ok {
			p.log.Warn("uplink child lost", "child", s.id.String(), telemetry.Err(context.Cause(s.conn.Context())), telemetry.KeyLeftOut, left)
		}
		if p.cfg.OnLost != nil {
			p.cfg.OnLost(s.id, s.path)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions[s.path] == s {
		delete(p.sessions, s.path)
		p.entered.Store(int64(len(p.sessions)))
	}
}

// bury adds what went over an ended session to the sums.
func (p *Parent) bury(s *intake) {
	t := s.sums.traffic(s.conn, s.version)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.past.add(&t)
	s.buried = true
}

func (p *Parent) owns(s *intake) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[s.path] == s
}

// remember keeps the newest boot of a path, so that a child whose clock was set back can be told. It is true when the
// boot is below that of an earlier session.
func (p *Parent) remember(path capacity.Path, boot uint64) (lower bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.held[path]; !known && len(p.held) >= 2*p.cfg.MaxChildren {
		for gone := range p.held {
			if p.sessions[gone] == nil {
				delete(p.held, gone)
				break
			}
		}
	}
	lower = boot < p.held[path]
	p.held[path] = boot
	return lower
}
