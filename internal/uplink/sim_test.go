package uplink

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/testutils/simnet"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
)

// planet is a simulated network with a certificate authority, inside one synctest bubble.
type planet struct {
	t   *testing.T
	ca  *identity.DevCA
	dir string
	net *wires
	log *record
	n   int
}

// wires loses, cuts and slows packets between addresses.
type wires struct {
	simnet.PerfectRouter
	plug  sync.RWMutex // while a host is attached nothing may be delivered: simnet announces it before it is ready
	mu    sync.Mutex
	dice  *rand.Rand
	loss  float64
	cut   map[string]bool // by IP
	bytes int             // a second, of each receiver; 0 is unlimited
	busy  map[string]time.Time
	sum   int // bytes that were not lost
}

func (w *wires) SendPacket(p simnet.Packet) error {
	w.mu.Lock()
	drop := w.dice.Float64() < w.loss || w.cut[ip(p.From)] || w.cut[ip(p.To)]
	if !drop {
		w.sum += len(p.Data)
	}
	w.mu.Unlock()
	if drop {
		return nil
	}
	w.plug.RLock()
	defer w.plug.RUnlock()
	return w.PerfectRouter.SendPacket(p)
}

// delay is the latency of a packet, with queueing when bandwidth is limited.
func (w *wires) delay(p simnet.Packet) time.Duration {
	const latency = 40 * time.Millisecond
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bytes == 0 {
		return latency
	}
	now := time.Now()
	start := w.busy[ip(p.To)]
	if start.Before(now) {
		start = now
	}
	w.busy[ip(p.To)] = start.Add(time.Second * time.Duration(len(p.Data)) / time.Duration(w.bytes))
	return w.busy[ip(p.To)].Sub(now) + latency
}

func (w *wires) delivered() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sum
}

func (w *wires) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func ip(a net.Addr) string { return a.(*net.UDPAddr).IP.String() }

// onPlanet runs f in a bubble of fake time.
func onPlanet(t *testing.T, f func(t *testing.T, w *planet)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ca, err := identity.NewDevCA(dir, "test.example")
		if err != nil {
			t.Fatal(err)
		}
		nw := &wires{dice: rand.New(rand.NewPCG(1, 2)), cut: map[string]bool{}, busy: map[string]time.Time{}}
		w := &planet{t: t, ca: ca, dir: dir, net: nw, log: &record{}}
		f(t, w)
	})
}

// host attaches a socket at 1.0.0.n:7.
func (w *planet) host(n int) *simnet.SimConn {
	addr := &net.UDPAddr{IP: net.IPv4(1, 0, 0, byte(n)).To4(), Port: 7}
	w.net.plug.Lock()
	defer w.net.plug.Unlock()
	one := simnet.Simnet{Router: w.net}
	c := one.NewEndpoint(addr, simnet.NodeBiDiLinkSettings{LatencyFunc: w.net.delay})
	if err := one.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		c.Close()
		one.Close()
	})
	return c
}

func (w *planet) certs(id identity.ID) *identity.Certs {
	w.t.Helper()
	id.TrustDomain = "test.example"
	w.n++
	return issue(w.t, w.ca, id, fmt.Sprintf("%s/%d", w.dir, w.n))
}

func issue(t *testing.T, ca *identity.DevCA, id identity.ID, dir string) *identity.Certs {
	t.Helper()
	files, err := ca.Issue(id, dir, 1000*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c, err := identity.Load(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func gateway(name string) identity.ID {
	return identity.ID{Role: identity.RoleGateway, Region: "us", Name: name}
}

func local(zone, name string) identity.ID {
	return identity.ID{Role: identity.RoleLocal, Region: "us", Zone: zone, Name: name}
}

// desk is a parent with a Book, as a tier has it, and what it was told.
type desk struct {
	*Parent
	mu      sync.Mutex
	book    *capacity.Book
	lost    []time.Time
	paths   []capacity.Path // of those lost
	only    capacity.Path   // what is counted; zero: everything
	arrived int
	worst   time.Duration // between making and arrival of a statement; CostMicros of model "clock" carries the making
}

func (d *desk) take(id identity.ID, s *capacity.Summary) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.book.Put(s, time.Now()) || d.only != (capacity.Path{}) && s.Path != d.only {
		return
	}
	d.arrived++
	if m := s.Model("clock"); m != nil {
		d.worst = max(d.worst, time.Since(time.UnixMicro(m.CostMicros)))
	}
}

func (d *desk) gone(id identity.ID, p capacity.Path) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.book.Drop(p)
	d.lost = append(d.lost, time.Now())
	d.paths = append(d.paths, p)
}

func (d *desk) state(p capacity.Path) (capacity.Freshness, *capacity.Summary) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, ok := d.book.View(time.Now()).Child(p)
	if !ok {
		return capacity.Lost, nil
	}
	return c.State, c.Summary
}

// seen is how many statements arrived since the last call, and how old the worst of them was.
func (d *desk) seen() (arrived int, worst time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	arrived, worst = d.arrived, d.worst
	d.arrived, d.worst = 0, 0
	return arrived, worst
}

func (d *desk) arrivals() int {
	n, _ := d.seen()
	return n
}

// change changes the book.
func (d *desk) change(f func(b *capacity.Book)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.book)
}

func (d *desk) losses() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.lost)
}

// parent starts a gateway's side at host n.
func (w *planet) parent(n int, socket net.PacketConn, change func(*ParentConfig)) *desk {
	w.t.Helper()
	return w.parentWith(w.certs(gateway(fmt.Sprint("g", n))), socket, change)
}

func (w *planet) parentWith(certs *identity.Certs, socket net.PacketConn, change func(*ParentConfig)) *desk {
	w.t.Helper()
	d := &desk{book: capacity.NewBook(capacity.Thresholds{})}
	cfg := ParentConfig{
		Certs: certs, ChildRole: identity.RoleLocal, OnSummary: d.take, OnLost: d.gone, OnLowerBoot: func(p capacity.Path) { d.change(func(b *capacity.Book) { b.Forget(p) }) },
		Log: w.log.logger(), socket: socket,
	}
	if change != nil {
		change(&cfg)
	}
	p, err := NewParent(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	d.Parent = p
	if err := p.Start(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	return d
}

// child makes zone a's local at host n, unstarted.
func (w *planet) child(n int, change func(*ChildConfig), parents ...int) *Child {
	w.t.Helper()
	cfg := ChildConfig{
		Certs: w.certs(local("a", fmt.Sprint("l", n))), ParentRole: identity.RoleGateway, Endpoint: "127.0.0.1:1",
		Summary: clock(1), Log: w.log.logger(), socket: w.host(n),
	}
	for _, p := range parents {
		cfg.Parents = append(cfg.Parents, fmt.Sprintf("1.0.0.%d:7", p))
	}
	if change != nil {
		change(&cfg)
	}
	c, err := NewChild(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *planet) start(c *Child) *Child {
	w.t.Helper()
	if err := c.Start(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	return c
}

type stopper interface{ Stop(context.Context) error }

func (w *planet) stop(all ...stopper) {
	w.t.Helper()
	for _, s := range all {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if err := s.Stop(ctx); err != nil {
			w.t.Error(err)
		}
		cancel()
	}
}

// clock makes statements of n models of which the first, "clock", says when the statement was made.
func clock(n int) func(time.Time) capacity.Summary {
	return func(now time.Time) capacity.Summary {
		s := capacity.Summary{Models: []capacity.Model{{Name: "clock", Total: 1, CostMicros: now.UnixMicro()}}}
		for i := range n - 1 {
			s.Models = append(s.Models, capacity.Model{
				Name: fmt.Sprintf("model-%03d-with-a-name-of-some-length", i), Ready: 3, Total: 4, CostMicros: now.UnixMicro(),
				Hardware: []capacity.Hardware{{Name: "H100", Ready: 3, PrefillRate: 30000 + now.UnixMilli()%1000, DecodeRate: 7000}},
			})
		}
		return s
	}
}

// record keeps log lines, to count how often one was said.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(struct{ io.Writer }{r}, nil))
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, string(b))
	return len(b), nil
}

func (r *record) count(text string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines {
		if strings.Contains(l, text) {
			n++
		}
	}
	return n
}
