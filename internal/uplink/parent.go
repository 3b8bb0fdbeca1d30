package uplink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/network"
	"github.com/spillway-lb/spillway/internal/origin"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// ParentConfig is what a Parent needs.
type ParentConfig struct {
	// Listen is the UDP address for children, "host:port"; port 0 takes a free one.
	Listen string
	// Certs is who this instance is.
	Certs *identity.Certs
	// ChildRole is what a child's certificate must say.
	ChildRole identity.Role
	// Scope is a further rule for children, such as "of my region"; nil allows every child of the role. It is called
	// for greetings and by Recheck, possibly concurrently. The child receives the text of its error.
	Scope func(identity.ID) error
	// OnSummary takes a statement; s must be treated as immutable. Its path is the one that the certificate names. It may
	// be called concurrently and late by a moment: a Book sorts that out. It must not block.
	OnSummary func(id identity.ID, s *capacity.Summary)
	// OnLost is told that a child's session ended and none has taken its place. It is never called after a statement of
	// a newer session. Nil ignores.
	OnLost func(id identity.ID, p capacity.Path)
	// OnLowerBoot is told, before its first statement, that a session numbers its statements below those of the session
	// before it: they must be forgotten, or they outrank all that follow. Nil ignores.
	OnLowerBoot func(p capacity.Path)
	// Directive makes the directive for a child, or nil for none. It must not block. Nil sends none.
	Directive func(p capacity.Path) *Directive
	// Network stands in for the system's where nodes run inside one process; nil: the system's.
	Network network.Network
	// Log takes changes of session state and refusals; nil discards.
	Log *slog.Logger
	// MaxChildren bounds the sessions; zero means capacity.MaxChildren.
	MaxChildren int

	socket net.PacketConn // for tests on a simulated network; the owner closes it
}

// Parent takes the sessions of a tier's children. It is used once: New, Start, Stop.
type Parent struct {
	cfg       ParentConfig
	log       *slog.Logger
	refused   refusals
	penance   penance
	arrivals  telemetry.Repeats
	losses    telemetry.Repeats
	unsentLog telemetry.Repeats
	unsent    atomic.Uint64             // directives that could not be encoded
	omitted   [numOmitted]atomic.Uint64 // what was left out of directives that were sent
	surge     surge
	transport *quic.Transport
	tls       *tls.Config
	listener  *quic.Listener
	boot      uint64
	cancel    context.CancelFunc
	started   atomic.Bool
	stopped   atomic.Bool
	done      sync.WaitGroup
	open      atomic.Int64 // connections, greeted or not
	entered   atomic.Int64 // len(sessions)

	mu       sync.Mutex
	sessions map[capacity.Path]*intake
	past     Traffic                  // of sessions that ended
	held     map[capacity.Path]uint64 // newest boot of each path, also after its session ended
}

// NewParent checks the configuration and binds the address, so that Addr is known before Start.
func NewParent(cfg ParentConfig) (*Parent, error) {
	if cfg.Certs == nil || cfg.OnSummary == nil {
		return nil, errors.New("uplink parent needs certificates and a taker of summaries")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxChildren <= 0 {
		cfg.MaxChildren = capacity.MaxChildren
	}
	socket := cfg.socket
	if socket == nil {
		var err error
		if socket, err = listen(cfg.Network, cfg.Listen); err != nil {
			return nil, fmt.Errorf("%s wants UDP %s for its children's uplinks: %w: free it, or set another uplink listen address", cfg.Certs.ID(), cfg.Listen, err)
		}
	}
	p := &Parent{
		cfg: cfg, log: cfg.Log, boot: uint64(time.Now().UnixNano()),
		sessions: make(map[capacity.Path]*intake), held: make(map[capacity.Path]uint64),
	}
	p.refused.log = cfg.Log
	p.tls = cfg.Certs.Server(ALPN, p.checkRole)
	p.transport = &quic.Transport{
		Conn: socket, StatelessResetKey: resetKey(p.tls), ConnContext: p.watch, VerifySourceAddress: p.surge.over,
	}
	return p, nil
}

// checkRole is the part of the rule for children that is applied inside the handshake.
func (p *Parent) checkRole(id identity.ID) error {
	if id.Role != p.cfg.ChildRole {
		return fmt.Errorf("it is a %s where a %s is expected", id.Role, p.cfg.ChildRole)
	}
	return nil
}

// admit is the rest of the rule for children. It is applied to greetings, where a refusal can carry its reason.
func (p *Parent) admit(id identity.ID) error {
	if p.cfg.Scope != nil {
		return p.cfg.Scope(id)
	}
	return nil
}

// Recheck applies the rule for children again to every session, and ends those that it no longer allows. The owner calls
// it when what Scope looks at has changed. It does not wait for the sessions' ends, which OnLost tells of.
func (p *Parent) Recheck() {
	p.mu.Lock()
	sessions := slices.Collect(maps.Values(p.sessions))
	p.mu.Unlock()
	for _, s := range sessions {
		if err := p.admit(s.id); err != nil {
			p.reject(s.conn, s.id, err)
		}
	}
}

// watch keeps addresses of many offences from handshaking as they like, and counts handshakes that failed because we
// refused the peer's certificate.
func (p *Parent) watch(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	from := hostOf(info.RemoteAddr)
	source := sourceOf(info.RemoteAddr)
	if !p.penance.allows(source, time.Now()) {
		p.refused.refuse(from, reasonPenance, errPenance.Error())
		return nil, errPenance
	}
	context.AfterFunc(ctx, func() {
		var t *quic.TransportError
		if errors.As(context.Cause(ctx), &t) && !t.Remote && t.ErrorCode.IsCryptoError() {
			p.penance.offend(source, time.Now())
			p.refused.refuse(from, reasonCertificate, t.Error())
		}
	})
	return ctx, nil
}

// sourceOf is what handshakes are bounded by: an IPv4 address, or the /64 of an IPv6 one.
func sourceOf(a net.Addr) string {
	host := hostOf(a)
	if ip, err := netip.ParseAddr(host); err == nil {
		return origin.SourceOf(ip).String()
	}
	return host
}

func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// Addr is where children connect.
func (p *Parent) Addr() net.Addr { return p.transport.Conn.LocalAddr() }

// Start takes children until Stop; the end of ctx does not stop it.
func (p *Parent) Start(ctx context.Context) error {
	if !p.started.CompareAndSwap(false, true) || p.stopped.Load() {
		return ErrStopped
	}
	ln, err := p.transport.Listen(p.tls, quicConfig(-1))
	if err != nil {
		return fmt.Errorf("taking uplinks: %w", err)
	}
	p.listener = ln
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.done.Go(func() { p.accept(ctx) })
	return nil
}

func (p *Parent) accept(ctx context.Context) {
	for {
		conn, err := p.listener.Accept(ctx)
		if err != nil {
			return
		}
		if p.open.Add(1) > int64(p.cfg.MaxChildren)+retryAbove {
			p.open.Add(-1)
			conn.CloseWithError(codeFull, "too many connections")
			continue
		}
		p.done.Go(func() {
			defer p.open.Add(-1)
			stop := context.AfterFunc(ctx, func() { conn.CloseWithError(codeBye, "stopping") })
			defer stop()
			p.serve(ctx, conn)
		})
	}
}

// Stop closes all sessions and waits for its goroutines until ctx ends. It calls OnLost for none of them: it is the
// parent that goes.
func (p *Parent) Stop(ctx context.Context) error {
	if !p.stopped.CompareAndSwap(false, true) {
		return nil
	}
	if p.cancel != nil {
		p.cancel()
	}
	err := wait(ctx, &p.done)
	if p.listener != nil {
		p.listener.Close()
	}
	p.transport.Close()
	if p.cfg.socket == nil {
		p.transport.Conn.Close()
	}
	return err
}

// Wake makes a new directive for every child. It never blocks; calls that come faster than a child takes directives
// become one.
func (p *Parent) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sessions {
		poke(s.push)
	}
}

// pace is the gap between statements that each child is asked for.
func (p *Parent) pace() time.Duration { return paceOf(int(p.entered.Load())) }

// Refused counts peers that were refused or sent rubbish.
func (p *Parent) Refused() uint64 { return p.refused.total() }

// Traffic is what went over all sessions so far, ended ones too.
func (p *Parent) Traffic() Traffic {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := p.past
	for _, s := range p.sessions {
		if t := s.sums.traffic(s.conn, s.version); !s.buried {
			sum.add(&t)
		}
	}
	return sum
}

// ChildInfo says how one child is connected.
type ChildInfo struct {
	ID       identity.ID
	Path     capacity.Path
	Endpoint string // as the Hello gave it
	Remote   string // the address it comes from
	Since    time.Time
	Traffic
	// Statements counts what arrived in this session; Last is when the newest did.
	Statements uint64
	Last       time.Time
	// Sent is the position of the last directive sent, InForce that of the one in force at the child; zero: not stated.
	Sent, InForce Position
}

// Children are the sessions, by path.
func (p *Parent) Children() []ChildInfo {
	p.mu.Lock()
	out := make([]ChildInfo, 0, len(p.sessions))
	for _, s := range p.sessions {
		out = append(out, s.info())
	}
	p.mu.Unlock()
	slices.SortFunc(out, func(a, b ChildInfo) int { return a.Path.Compare(b.Path) })
	return out
}

func (p *Parent) session(path capacity.Path) *intake {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[path]
}
