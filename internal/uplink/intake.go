package uplink

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

const (
	directiveEvery = 5 * time.Second
	directiveGap   = 20 * time.Millisecond
)

var errFull = errors.New("this parent has all the children it takes")

// intake is the parent's end of one connection.
type intake struct {
	parent   *Parent
	conn     *quic.Conn
	id       identity.ID
	path     capacity.Path
	endpoint string
	since    time.Time
	push     chan struct{} // a new directive is due
	count    atomic.Uint64
	boot     atomic.Uint64 // of the newest statement
	last     atomic.Int64  // nanoseconds since since

	mu  sync.Mutex // of in
	in  inbox
	end chan struct{} // closed once the session is over and OnLost, if due, has returned
}

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
	var work sync.WaitGroup
	for _, loop := range []func() error{s.takeDatagrams, s.takeSnapshots, s.pushDirectives} {
		work.Go(func() {
			if err := loop(); isRubbish(err) {
				p.reject(conn, id, err)
			}
		})
	}
	work.Wait()
	p.leave(ctx, s)
}

// reject closes a connection; refusals of honest peers by a full or stopping parent are not counted.
func (p *Parent) reject(conn *quic.Conn, id identity.ID, err error) {
	code := codeRefused
	switch {
	case isRubbish(err):
		code = codeRubbish
	case errors.Is(err, errVersion):
		code = codeVersion
	case errors.Is(err, errFull):
		code = codeFull
	case conn.Context().Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		conn.CloseWithError(codeBye, "no greeting")
		return
	}
	conn.CloseWithError(code, err.Error()[:min(len(err.Error()), 200)])
	p.refused.refuse(id.String(), err.Error())
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
	s := &intake{
		parent: p, conn: conn, id: id, path: path, endpoint: h.Endpoint, since: time.Now(),
		push: make(chan struct{}, 1), end: make(chan struct{}), in: inbox{path: path, boot: h.Boot},
	}
	held, err := p.enter(s)
	if err != nil {
		return nil, err
	}
	if err := writeFrame(control, &uplinkpb.Welcome{Version: v, HeldBoot: held, Boot: p.boot}); err != nil {
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
	held = p.held[s.path]
	p.mu.Unlock()
	if old != nil {
		old.conn.CloseWithError(codeReplaced, "a newer session of the same path")
		<-old.end
	}
	p.log.Info("uplink child connected", "child", s.id.String(), "address", s.conn.RemoteAddr().String())
	return held, nil
}

// leave ends a session. It tells OnLost unless a newer session has taken the path or the parent itself is stopping.
func (p *Parent) leave(ctx context.Context, s *intake) {
	defer close(s.end)
	if !p.owns(s) {
		return
	}
	if ctx.Err() == nil {
		p.log.Warn("uplink child lost", "child", s.id.String(), "error", context.Cause(s.conn.Context()))
		if p.cfg.OnLost != nil {
			p.cfg.OnLost(s.id, s.path)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions[s.path] == s {
		delete(p.sessions, s.path)
	}
}

func (p *Parent) owns(s *intake) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[s.path] == s
}

// remember keeps the greatest boot of a path, so that a child whose clock was set back can be told.
func (p *Parent) remember(path capacity.Path, boot uint64) {
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
	p.held[path] = max(p.held[path], boot)
}

func (s *intake) takeDatagrams() error {
	for {
		b, err := s.conn.ReceiveDatagram(s.conn.Context())
		if err != nil {
			return err
		}
		if len(b) == 0 || b[0] != kindDelta {
			continue
		}
		s.mu.Lock()
		statement, err := s.in.delta(b[1:])
		newest := s.in.newest
		s.mu.Unlock()
		if err != nil {
			return err
		}
		if newest != nil {
			s.confirm(newest)
		}
		s.deliver(statement)
	}
}

// confirm tells the child how far it is heard. A lost one is made good by the next.
func (s *intake) confirm(newest *capacity.Summary) {
	b, err := proto.Marshal(&uplinkpb.Heard{Boot: newest.Boot, Seq: newest.Seq})
	if err == nil {
		_ = s.conn.SendDatagram(append([]byte{kindHeard}, b...))
	}
}

// takeSnapshots reads one stream at a time: a child has at most one snapshot under way.
func (s *intake) takeSnapshots() error {
	for {
		st, err := s.conn.AcceptStream(s.conn.Context())
		if err != nil {
			return err
		}
		if err := s.takeSnapshot(st); isRubbish(err) {
			return err
		}
	}
}

func (s *intake) takeSnapshot(st *quic.Stream) error {
	defer st.CancelRead(0)
	kind, body, err := readMessage(st, capacity.MaxEncoded)
	if err != nil || kind != kindSnapshot {
		st.CancelWrite(0)
		return err
	}
	s.mu.Lock()
	statement, err := s.in.snapshot(body)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if _, err := st.Write([]byte{confirmed}); err != nil {
		return err
	}
	st.Close()
	s.deliver(statement)
	return nil
}

func (s *intake) deliver(statement *capacity.Summary) {
	if statement == nil {
		return
	}
	s.count.Add(1)
	if s.boot.Swap(statement.Boot) != statement.Boot {
		s.parent.remember(s.path, statement.Boot)
	}
	s.last.Store(int64(time.Since(s.since)))
	s.parent.cfg.OnSummary(s.id, statement)
}

// pushDirectives sends the newest directive at every Wake and now and then besides. A slow link delays the next one,
// which is made only when it can leave: so there is never a queue of old ones.
func (s *intake) pushDirectives() error {
	if s.parent.cfg.Directive == nil {
		return nil
	}
	tick := time.NewTicker(directiveEvery)
	defer tick.Stop()
	for order := uint64(1); ; order++ {
		if d := s.parent.cfg.Directive(s.path); d != nil {
			s.sendDirective(order, d)
		}
		if !pause(s.conn.Context(), directiveGap) {
			return nil
		}
		select {
		case <-s.conn.Context().Done():
			return nil
		case <-s.push:
		case <-tick.C:
		}
	}
}

func (s *intake) sendDirective(order uint64, d *Directive) {
	b, err := encodeDirective(order, d)
	if err != nil {
		if s.parent.refused.first("directive\x00" + err.Error()) {
			s.parent.log.Error("directive cannot be sent", "error", err)
		}
		return
	}
	st, err := s.conn.OpenUniStreamSync(s.conn.Context())
	if err != nil {
		return
	}
	st.SetWriteDeadline(time.Now().Add(streamTimeout))
	if _, err := st.Write(append([]byte{kindDirective}, b...)); err != nil {
		st.CancelWrite(0)
		return
	}
	st.Close()
}

func (s *intake) info() ChildInfo {
	i := ChildInfo{
		ID: s.id, Path: s.path, Endpoint: s.endpoint, Remote: s.conn.RemoteAddr().String(), Since: s.since,
		RTT: s.conn.ConnectionStats().SmoothedRTT, Statements: s.count.Load(),
	}
	if i.Statements > 0 {
		i.Last = s.since.Add(time.Duration(s.last.Load()))
	}
	return i
}
