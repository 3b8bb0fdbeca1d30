package uplink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

const (
	maxAge     = time.Hour // of a session, so that rotation and revocation of certificates bite
	settled    = 10 * time.Second
	renewRetry = time.Minute
)

// Session says how a child is connected to one parent.
type Session struct {
	// Address as configured.
	Address string
	// Parent is who answered there; zero before the first session.
	Parent    identity.ID
	Connected bool
	// Heard is when the parent last confirmed a statement, in the session that is there; its beginning before the first.
	Heard time.Time
	// Since is when the session began or was lost.
	Since time.Time
	// Traffic of the session; zero while not connected.
	Traffic
	// Gap is what the parent asked to keep between statements, 0 when it takes them as they come.
	Gap time.Duration
	// Err is why there is no session.
	Err error
}

// link keeps one session to one parent address.
type link struct {
	child   *Child
	addr    string
	tls     *tls.Config
	rng     *rand.Rand
	backoff backoff
	current atomic.Pointer[session]

	mu   sync.Mutex
	now  Session
	past Traffic // of sessions that ended
}

func newLink(c *Child, addr string) *link {
	l := &link{child: c, addr: addr, rng: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}
	l.now = Session{Address: addr, Since: time.Now(), Err: errors.New("not connected yet")}
	l.tls = c.cfg.Certs.Client(ALPN, l.admit)
	return l
}

// admit is the rule for parents: the right role, and gateways only of our own region.
func (l *link) admit(id identity.ID) error {
	if id.Role != l.child.cfg.ParentRole {
		return fmt.Errorf("it is a %s where a %s is expected", id.Role, l.child.cfg.ParentRole)
	}
	if id.Role == identity.RoleGateway && id.Region != l.child.cfg.Path.Region {
		return fmt.Errorf("it serves region %s, not %s", id.Region, l.child.cfg.Path.Region)
	}
	return nil
}

func (l *link) run(ctx context.Context) {
	for ctx.Err() == nil {
		begun := time.Now()
		s, err := l.dial(ctx)
		if err == nil {
			l.up(s)
			err = l.hold(ctx, s)
		}
		if ctx.Err() != nil {
			return
		}
		l.down(err)
		if time.Since(begun) > settled {
			l.backoff.reset()
		}
		if !pause(ctx, l.delay(err)) {
			return
		}
	}
}

// delay is the wait before the next attempt. Who was replaced or refused waits long: it is no passing trouble.
func (l *link) delay(err error) time.Duration {
	d := l.backoff.next(l.rng)
	var app *quic.ApplicationError
	if errors.As(err, &app) && app.Remote && app.ErrorCode != codeBye && app.ErrorCode != codeSilent {
		return max(d, backoffMost/2+time.Duration(l.rng.Int64N(int64(backoffMost/2))))
	}
	return d
}

// hold stays until the session ends, and puts a new one in its place before it grows too old.
func (l *link) hold(ctx context.Context, s *session) error {
	age := time.NewTimer(l.renewAfter())
	defer age.Stop()
	for {
		select {
		case <-ctx.Done():
			s.close(codeBye, "stopping")
			l.bury(s)
			return ctx.Err()
		case <-s.done:
			l.bury(s)
			return s.cause()
		case <-age.C:
		}
		next, err := l.dial(ctx)
		if err != nil {
			age.Reset(renewRetry)
			continue
		}
		l.up(next)
		s.close(codeBye, "renewed")
		l.bury(s)
		s = next
		age.Reset(l.renewAfter())
	}
}

// renewAfter is when a new session takes the place of one that begins now: within maxAge, and well before this node's
// certificate ends, for the parent ends the session then.
func (l *link) renewAfter() time.Duration {
	left := time.Until(l.child.cfg.Certs.Expires())
	return min(maxAge-time.Duration(l.rng.Int64N(int64(maxAge/10))), max(left-left/10, renewRetry))
}

// dial opens a session and starts it.
func (l *link) dial(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*handshakeTimeout)
	defer cancel()
	addr, err := resolve(ctx, l.addr)
	if err != nil {
		return nil, err
	}
	conn, err := l.child.transport.Dial(ctx, addr, l.tls, quicConfig(maxStreams/2))
	if err != nil {
		return nil, err
	}
	welcome, err := l.greet(ctx, conn)
	var agreed uint32
	if err == nil {
		agreed, err = agreeOn(welcome.Version, minVersion)
	}
	var id identity.ID
	if err == nil {
		id, err = identity.PeerID(conn.ConnectionState().TLS)
	}
	if err != nil {
		if cause := context.Cause(conn.Context()); cause != nil {
			err = cause // what the parent closed with says more than the stream's end
		}
		conn.CloseWithError(codeOf(err), "no welcome")
		return nil, err
	}
	l.child.exceed(id.String(), welcome.HeldBoot)
	return startSession(l.child, conn, id, agreed), nil
}

func (l *link) greet(ctx context.Context, conn *quic.Conn) (*uplinkpb.Welcome, error) {
	control, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	control.SetDeadline(time.Now().Add(handshakeTimeout))
	if err := writeFrame(control, helloOf(l.child.cfg.Path, l.child.Boot(), l.child.cfg.Endpoint)); err != nil {
		return nil, err
	}
	var w uplinkpb.Welcome
	if err := readFrame(control, &w); err != nil {
		return nil, err
	}
	return &w, nil
}

func codeOf(err error) quic.ApplicationErrorCode {
	switch {
	case isRubbish(err):
		return codeRubbish
	case errors.Is(err, errVersion):
		return codeVersion
	}
	return codeBye
}

func (l *link) up(s *session) {
	l.current.Store(s)
	poke(s.news)
	l.mu.Lock()
	defer l.mu.Unlock()
	if left, back := l.child.repeats.Back(l.addr); back || l.now.Parent == (identity.ID{}) {
		l.child.log.Info("uplink connected", "parent", s.parent.String(), "address", l.addr, telemetry.KeyLeftOut, left)
	}
	l.now = Session{Address: l.addr, Parent: s.parent, Connected: true, Since: time.Now()}
}

// bury adds what went over an ended session to the sums.
func (l *link) bury(s *session) {
	t := s.sums.traffic(s.conn, s.version)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.past.add(&t)
	l.current.CompareAndSwap(s, nil)
}

// traffic is what went over the link so far.
func (l *link) traffic() Traffic {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.past
	if s := l.current.Load(); s != nil {
		t := s.sums.traffic(s.conn, s.version)
		sum.add(&t)
	}
	return sum
}

// down notes the loss, and logs it once until the next success, and at most once a minute if sessions come and go.
func (l *link) down(err error) {
	l.current.Store(nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	var app *quic.ApplicationError
	if errors.As(err, &app) && app.Remote && app.ErrorCode != codeBye && app.ErrorCode != codeSilent {
		l.child.warn("uplink refused by the parent, retrying", l.addr, err)
	} else if l.now.Connected || l.now.Parent == (identity.ID{}) && l.backoff.last == 0 {
		l.child.warn("uplink down, retrying", l.addr, err)
	}
	if l.now.Connected {
		l.now.Since = time.Now()
	}
	l.now.Connected, l.now.Err = false, err
}

func (l *link) status() Session {
	l.mu.Lock()
	out := l.now
	l.mu.Unlock()
	if s := l.current.Load(); s != nil && out.Connected {
		out.Traffic, out.Gap = s.sums.traffic(s.conn, s.version), time.Duration(s.gap.Load())
		out.Heard = s.begun.Add(time.Duration(s.heardAt.Load()))
	}
	return out
}
