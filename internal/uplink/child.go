package uplink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/network"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

const (
	defaultInterval = 250 * time.Millisecond
	statementGap    = 10 * time.Millisecond // the least time between two statements, however often Wake is called
	maxParents      = 256
)

// ChildConfig is what a Child needs.
type ChildConfig struct {
	// Certs is who this instance is; it must be a gateway's or a local's.
	Certs *identity.Certs
	// Parents are the addresses of all instances of the parent tier, "host:port". Each gets a session.
	Parents []string
	// ParentRole is what a parent's certificate must say. Gateways must also be of this child's region.
	ParentRole identity.Role
	// Path is the subtree that this child speaks for. Zero means what the certificate says; anything else is refused.
	Path capacity.Path
	// Endpoint is where this instance takes forwarded requests, "host:port".
	Endpoint string
	// Interval is the time between statements while nothing moves; zero means 250 ms. While something does, it is 100 ms
	// if that is shorter.
	Interval time.Duration
	// Summary makes a statement. Path, Boot, Seq and Endpoint are filled in afterwards. What it returns must not change
	// later. It is called from one goroutine and must not block.
	Summary func(now time.Time) capacity.Summary
	// OnDirective takes a directive. It is called from one goroutine per parent, in the order of that parent's
	// directives; d must be treated as immutable. Nil ignores directives.
	OnDirective func(parent identity.ID, d *Directive)
	// InForce is the position of the directive in force, which is stated to each parent after its directives. Nil: none is
	// stated.
	InForce func() Position
	// OnAsk answers a parent's question within ctx, at most MaxAsk bytes. It may be called concurrently. Nil refuses.
	OnAsk func(ctx context.Context, kind string, payload []byte) ([]byte, error)
	// Network stands in for the system's where nodes run inside one process; nil: the system's.
	Network network.Network
	// Log takes changes of session state; nil discards.
	Log *slog.Logger

	socket net.PacketConn // for tests on a simulated network; the owner closes it
}

// Child keeps a session to every parent and tells each the newest statement. It is used once: New, Start, Stop.
type Child struct {
	cfg       ChildConfig
	log       *slog.Logger
	boot      atomic.Uint64
	latest    atomic.Pointer[statement]
	repeats   telemetry.Repeats
	follower  follower
	wake      chan struct{}
	links     []*link
	transport *quic.Transport
	cancel    context.CancelFunc
	started   atomic.Bool
	stopped   atomic.Bool
	done      sync.WaitGroup
}

// NewChild checks the configuration and opens a UDP socket. Stop closes it, also when Start was never called.
func NewChild(cfg ChildConfig) (*Child, error) {
	switch {
	case cfg.Certs == nil || cfg.Summary == nil:
		return nil, errors.New("uplink child needs certificates and a summary")
	case len(cfg.Parents) > maxParents:
		return nil, fmt.Errorf("%d uplink parents: at most %d", len(cfg.Parents), maxParents)
	}
	path, err := PathOf(cfg.Certs.ID())
	if err != nil {
		return nil, err
	}
	if cfg.Path == (capacity.Path{}) {
		cfg.Path = path
	}
	if cfg.Path != path {
		return nil, fmt.Errorf("this node is configured as %q but its certificate says %q: issue a certificate for it, or correct the configuration", cfg.Path, path)
	}
	if cfg.Interval <= 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	socket := cfg.socket
	if socket == nil {
		if socket, err = listen(cfg.Network, ":0"); err != nil {
			return nil, fmt.Errorf("opening a socket for uplinks: %w", err)
		}
	}
	c := &Child{cfg: cfg, log: cfg.Log, wake: make(chan struct{}, 1), transport: &quic.Transport{Conn: socket}}
	c.boot.Store(uint64(time.Now().UnixNano()))
	for _, addr := range cfg.Parents {
		c.links = append(c.links, newLink(c, addr))
	}
	return c, nil
}

// Start begins connecting and returns at once: a child works while its parents are away. It runs until Stop; the end of
// ctx does not stop it.
func (c *Child) Start(ctx context.Context) error {
	if !c.started.CompareAndSwap(false, true) || c.stopped.Load() {
		return ErrStopped
	}
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.state(false)
	c.done.Go(func() { c.produce(ctx) })
	for _, l := range c.links {
		c.done.Go(func() { l.run(ctx) })
	}
	return nil
}

// Stop closes all sessions in good order, so that parents know at once, and waits for its goroutines until ctx ends.
func (c *Child) Stop(ctx context.Context) error {
	if !c.stopped.CompareAndSwap(false, true) {
		return nil
	}
	if c.cancel != nil {
		c.cancel()
	}
	err := wait(ctx, &c.done)
	c.transport.Close()
	if c.cfg.socket == nil {
		c.transport.Conn.Close()
	}
	return err
}

// Boot numbers this life of the instance in its statements. It rises when a parent remembers a greater one.
func (c *Child) Boot() uint64 { return c.boot.Load() }

// Wake makes a statement now instead of at the next interval. It never blocks.
func (c *Child) Wake() { poke(c.wake) }

// Sessions says how each parent is connected, in the order of Parents.
func (c *Child) Sessions() []Session {
	out := make([]Session, len(c.links))
	for i, l := range c.links {
		out[i] = l.status()
	}
	return out
}

// Traffic is what went over all sessions so far, ended ones too.
func (c *Child) Traffic() (sum Traffic) {
	for _, l := range c.links {
		t := l.traffic()
		sum.add(&t)
	}
	return sum
}

// produce makes statements and pokes the sessions; each session sends the newest when it can.
func (c *Child) produce(ctx context.Context) {
	moved := time.Now()
	due := time.NewTimer(c.cadence(moved, moved))
	defer due.Stop()
	for last := time.Now(); ; last = time.Now() {
		woken := false
		select {
		case <-ctx.Done():
			return
		case <-due.C:
		case <-c.wake:
			woken = true
			if early := statementGap - time.Since(last); early > 0 && !pause(ctx, early) {
				return
			}
		}
		now := time.Now()
		if c.state(woken) {
			moved = now
		}
		if !woken { // who is woken often keeps its cadence all the same
			due.Reset(c.cadence(now, moved))
		}
	}
}

// cadence is the time to the next statement: while something moves, as short as the least patient of the parents wants.
func (c *Child) cadence(now, moved time.Time) time.Duration {
	gap, told := paceMost, false
	for _, l := range c.links {
		if cur := l.current.Load(); cur != nil {
			gap, told = min(gap, time.Duration(cur.gap.Load())), true
		}
	}
	if !told || now.Sub(moved) >= movingFor {
		return c.cfg.Interval
	}
	return max(min(movingInterval, c.cfg.Interval), gap)
}

// state makes the next statement, and tells whether it says anything new. Only Start and then produce call it.
func (c *Child) state(urgent bool) (moved bool) {
	var seq uint64
	old := c.latest.Load()
	s := c.cfg.Summary(time.Now())
	if old != nil {
		seq, s = old.Seq, capacity.Steady(old.Summary, &s)
	}
	s.Path, s.Endpoint, s.Boot, s.Seq = c.cfg.Path, c.cfg.Endpoint, c.boot.Load(), seq+1
	s = capacity.Fit(s)
	next := follow(old, &s)
	next.urgent = urgent
	c.latest.Store(next)
	for _, l := range c.links {
		if cur := l.current.Load(); cur != nil {
			poke(cur.news)
		}
	}
	return next.since == next.Seq
}

// exceed raises Boot above what a parent remembers of an earlier life. A number far ahead of the clock is ignored: the
// parent takes a lower one in a new session (see intake.deliver).
func (c *Child) exceed(parent string, held uint64) {
	if limit := maxBoot(time.Now(), childBootAhead); held > limit {
		c.warn("a parent remembers a boot number far ahead of this node's clock, it is ignored: check the clocks of both nodes", parent,
			fmt.Errorf("boot %d, at most %d", held, limit))
		return
	}
	for {
		own := c.boot.Load()
		if held <= own {
			return
		}
		if c.boot.CompareAndSwap(own, held+1) {
			c.warn("a parent remembers a greater boot", parent, errTwins)
			c.Wake()
			return
		}
	}
}

// warn logs trouble with a parent, and thins it while it lasts.
func (c *Child) warn(msg, parent string, err error) {
	if left, ok := c.repeats.Pass(msg, parent, time.Now()); ok {
		c.log.Warn(msg, "parent", parent, telemetry.Err(err), telemetry.KeyLeftOut, left)
	}
}

func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// pause waits; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// wait waits for the group, at most until ctx ends.
func wait(ctx context.Context, wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopping uplink: %w", ctx.Err())
	}
}
