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
	"go.uber.org/goleak"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
)

// testNetwork is a simulated network with a certificate authority, inside one synctest bubble.
type testNetwork struct {
	t        *testing.T
	ca       *identity.DevCA
	dir      string
	router   *lossyRouter
	log      *logRecorder
	certSets int
}

// lossyRouter loses, blocks and slows packets between addresses.
type lossyRouter struct {
	simnet.PerfectRouter
	attachMu       sync.RWMutex // while a host is attached nothing may be delivered: simnet announces it before it is ready
	mu             sync.Mutex
	rng            *rand.Rand
	loss           float64
	isolated       map[string]bool // by IP
	bytesPerSecond int             // per second, of each receiver; 0 is unlimited
	busyUntil      map[string]time.Time
	deliveredBytes int // bytes that were not lost
}

func (w *lossyRouter) SendPacket(p simnet.Packet) error {
	w.mu.Lock()
	drop := w.rng.Float64() < w.loss || w.isolated[ipOf(p.From)] || w.isolated[ipOf(p.To)]
	if !drop {
		w.deliveredBytes += len(p.Data)
	}
	w.mu.Unlock()
	if drop {
		return nil
	}
	w.attachMu.RLock()
	defer w.attachMu.RUnlock()
	return w.PerfectRouter.SendPacket(p)
}

// packetDelay is the latency of a packet, with queueing when bandwidth is limited.
func (w *lossyRouter) packetDelay(p simnet.Packet) time.Duration {
	const latency = 40 * time.Millisecond
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bytesPerSecond == 0 {
		return latency
	}
	now := time.Now()
	start := w.busyUntil[ipOf(p.To)]
	if start.Before(now) {
		start = now
	}
	w.busyUntil[ipOf(p.To)] = start.Add(time.Second * time.Duration(len(p.Data)) / time.Duration(w.bytesPerSecond))
	return w.busyUntil[ipOf(p.To)].Sub(now) + latency
}

func (w *lossyRouter) countDelivered() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deliveredBytes
}

func (w *lossyRouter) withLock(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func ipOf(a net.Addr) string { return a.(*net.UDPAddr).IP.String() }

// runOnTestNetwork runs f in a bubble of fake time.
func runOnTestNetwork(t *testing.T, f func(t *testing.T, w *testNetwork)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ca, err := identity.NewDevCA(dir, "test.example")
		if err != nil {
			t.Fatal(err)
		}
		nw := &lossyRouter{rng: rand.New(rand.NewPCG(1, 2)), isolated: map[string]bool{}, busyUntil: map[string]time.Time{}}
		w := &testNetwork{t: t, ca: ca, dir: dir, router: nw, log: &logRecorder{}}
		f(t, w)
	})
}

// attachHost attaches a socket at 1.0.0.n:7.
func (w *testNetwork) attachHost(n int) *simnet.SimConn {
	addr := &net.UDPAddr{IP: net.IPv4(1, 0, 0, byte(n)).To4(), Port: 7}
	w.router.attachMu.Lock()
	defer w.router.attachMu.Unlock()
	one := simnet.Simnet{Router: w.router}
	c := one.NewEndpoint(addr, simnet.NodeBiDiLinkSettings{LatencyFunc: w.router.packetDelay})
	if err := one.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		c.Close()
		one.Close()
	})
	return c
}

func (w *testNetwork) newCerts(id identity.ID) *identity.Certs {
	w.t.Helper()
	id.TrustDomain = "test.example"
	w.certSets++
	return issueCerts(w.t, w.ca, id, fmt.Sprintf("%s/%d", w.dir, w.certSets))
}

func issueCerts(t *testing.T, ca *identity.DevCA, id identity.ID, dir string) *identity.Certs {
	t.Helper()
	files, err := ca.IssueCert(id, dir, 1000*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c, err := identity.LoadCerts(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func gatewayID(name string) identity.ID {
	return identity.ID{Role: identity.RoleGateway, Region: "us", Name: name}
}

func localID(zone, name string) identity.ID {
	return identity.ID{Role: identity.RoleLocal, Region: "us", Zone: zone, Name: name}
}

// testParent is a parent with a SummaryTable, as in a tier, and the calls that it received.
type testParent struct {
	*Parent
	mu         sync.Mutex
	store      *capacity.SummaryTable
	lostAt     []time.Time
	lostPaths  []capacity.Path // of those lost
	onlyPath   capacity.Path   // the only path that is counted; zero: every path
	arrived    int
	worstDelay time.Duration // between making and arrival of a summary; CostMicros of model "clock" carries the time of making
}

func (d *testParent) putSummary(id identity.ID, s *capacity.Summary) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.store.PutSummary(s, time.Now()) || d.onlyPath != (capacity.Path{}) && s.Path != d.onlyPath {
		return
	}
	d.arrived++
	if m := s.FindModel("clock"); m != nil {
		d.worstDelay = max(d.worstDelay, time.Since(time.UnixMicro(m.CostMicros)))
	}
}

func (d *testParent) recordLoss(id identity.ID, p capacity.Path) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.store.MarkUnreachable(p)
	d.lostAt = append(d.lostAt, time.Now())
	d.lostPaths = append(d.lostPaths, p)
}

func (d *testParent) childState(p capacity.Path) (capacity.Freshness, *capacity.Summary) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, ok := d.store.BuildView(time.Now()).FindChild(p)
	if !ok {
		return capacity.Unreachable, nil
	}
	return c.State, c.Summary
}

// takeArrivals returns how many summaries arrived since the last call, and the largest age among them.
func (d *testParent) takeArrivals() (arrived int, worst time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	arrived, worst = d.arrived, d.worstDelay
	d.arrived, d.worstDelay = 0, 0
	return arrived, worst
}

func (d *testParent) countArrivals() int {
	n, _ := d.takeArrivals()
	return n
}

// editStore changes the table.
func (d *testParent) editStore(f func(b *capacity.SummaryTable)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.store)
}

func (d *testParent) countLosses() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.lostAt)
}

// startParent starts the parent end of a gateway at host n.
func (w *testNetwork) startParent(n int, socket net.PacketConn, change func(*ParentConfig)) *testParent {
	w.t.Helper()
	return w.startParentWith(w.newCerts(gatewayID(fmt.Sprint("g", n))), socket, change)
}

func (w *testNetwork) startParentWith(certs *identity.Certs, socket net.PacketConn, change func(*ParentConfig)) *testParent {
	w.t.Helper()
	d := &testParent{store: capacity.NewSummaryTable(capacity.FreshnessThresholds{})}
	cfg := ParentConfig{
		Certs: certs, ChildRole: identity.RoleLocal, OnSummary: d.putSummary, OnLost: d.recordLoss, OnLowerBoot: func(p capacity.Path) { d.editStore(func(b *capacity.SummaryTable) { b.RemoveChild(p) }) },
		Log: w.log.newLogger(), socket: socket,
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

// newChild creates zone a's local instance at host n, not started.
func (w *testNetwork) newChild(n int, change func(*ChildConfig), parents ...int) *Child {
	w.t.Helper()
	cfg := ChildConfig{
		Certs: w.newCerts(localID("a", fmt.Sprint("l", n))), ParentRole: identity.RoleGateway, Endpoint: "127.0.0.1:1",
		BuildSummary: timestampedModels(1), Log: w.log.newLogger(), socket: w.attachHost(n),
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

func (w *testNetwork) startChild(c *Child) *Child {
	w.t.Helper()
	if err := c.Start(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	return c
}

type stopper interface{ Stop(context.Context) error }

func (w *testNetwork) stopAll(all ...stopper) {
	w.t.Helper()
	for _, s := range all {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if err := s.Stop(ctx); err != nil {
			w.t.Error(err)
		}
		cancel()
	}
}

// timestampedModels makes summaries of n models of which the first, "clock", carries the time of making.
func timestampedModels(n int) func(time.Time) capacity.Summary {
	return func(now time.Time) capacity.Summary {
		s := capacity.Summary{Models: []*capacity.ModelCapacity{{Name: "clock", Total: 1, CostMicros: now.UnixMicro()}}}
		for i := range n - 1 {
			s.Models = append(s.Models, &capacity.ModelCapacity{
				Name: fmt.Sprintf("model-%03d-with-a-name-of-some-length", i), Ready: 3, Total: 4, CostMicros: now.UnixMicro(),
				Hardware: []capacity.HardwareRates{{Name: "H100", Ready: 3, PrefillRate: 30000 + now.UnixMilli()%1000, DecodeRate: 7000}},
			})
		}
		return s
	}
}

// logRecorder keeps log lines, to count repetitions.
type logRecorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *logRecorder) newLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(struct{ io.Writer }{r}, nil))
}

func (r *logRecorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, string(b))
	return len(b), nil
}

func (r *logRecorder) countLines(text string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines {
		if strings.Contains(l, text) {
			n++
		}
	}
	return n
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
