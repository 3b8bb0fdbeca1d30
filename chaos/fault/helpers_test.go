package fault

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestMain lets the test binary run as the processes of a fleet: the relay, the agent, simulated workers, and nodes that
// only listen.
func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	switch a := os.Args; {
	case len(a) == 4 && a[1] == "fault":
		err = Hold(ctx, a[2], a[3], slog.New(slog.NewTextHandler(os.Stderr, nil)))
	case len(a) == 4 && a[2] == "-c":
		err = runTestNode(ctx, a[1], a[3])
	default:
		os.Exit(m.Run())
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runTestNode runs a simulated worker, or listens where a node of another role would and echoes.
func runTestNode(ctx context.Context, role, path string) error {
	cfg, err := config.LoadFile(path)
	if err != nil {
		return err
	}
	var listen []string
	switch c := cfg.(type) {
	case *config.SimulatedWorker:
		w, err := gpu.New(gpu.Config{Listen: c.Listen, GPU: c.GPU, Model: c.Model, ServedModel: c.ServedAs, Seed: c.Seed})
		if err != nil {
			return err
		}
		if err := w.Start(ctx); err != nil {
			return err
		}
		<-ctx.Done()
		return w.Stop(ctx)
	case *config.Global:
		listen = []string{c.Raft.Listen, c.HTTP.Listen}
	case *config.Regional:
		listen = []string{c.HTTP.Listen, c.Peer.Listen}
	case *config.Local:
		listen = []string{c.HTTP.Listen}
	}
	for _, a := range listen {
		ln, err := net.Listen("tcp", a)
		if err != nil {
			return err
		}
		go echoConns(ln)
	}
	<-ctx.Done()
	return nil
}

func echoConns(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			buf := make([]byte, 4096)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				c.Write(buf[:n])
			}
		}()
	}
}

// writeFleet writes a small fleet with relays to a temporary directory.
func writeFleet(t *testing.T, noDelay bool) *fleet.Files {
	t.Helper()
	dir, err := os.MkdirTemp("", "spf") // short: a socket's path has room for about a hundred bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	for range 50 {
		l := fleet.Layout{Globals: 3, Regions: 3, Gateways: 1, Zones: 1, Locals: 1, Workers: 2, Relays: true, NoDelay: noDelay, Net: rand.IntN(90)}
		if !isFree(l) {
			continue
		}
		p, err := fleet.WriteFiles(filepath.Join(dir, "f"), l)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Skip("no free network of 127.0.0.0/8 was found")
	return nil
}

func isFree(l fleet.Layout) bool {
	var addrs []netip.AddrPort
	for _, n := range l.BuildNodes() {
		for _, a := range n.Addr {
			addrs = append(addrs, a)
		}
	}
	for _, k := range l.BuildLinks() {
		addrs = append(addrs, k.Listen)
	}
	for _, a := range addrs {
		ln, err := net.Listen("tcp", a.String())
		if err != nil {
			return false
		}
		ln.Close()
	}
	return true
}

// openTestRelay runs a relay in this process, and an echo at the far end of each link.
func openTestRelay(t *testing.T, noDelay bool) *relay {
	t.Helper()
	p := writeFleet(t, noDelay)
	if err := os.MkdirAll(faultDir(p), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := p.RecordProcess("frankfurt-gw1", os.Getpid()); err != nil { // links that share an address tell it by its sockets
		t.Fatal(err)
	}
	open := map[netip.AddrPort]bool{}
	for _, k := range p.Links() {
		if open[k.Forward] {
			continue
		}
		open[k.Forward] = true
		if k.Datagrams {
			echoDatagrams(t, k.Forward)
			continue
		}
		ln, err := net.Listen("tcp", k.Forward.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go echoConns(ln)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r, err := openRelay(ctx, p, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.place.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := r.stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, k := range p.Links() {
		if !k.Datagrams {
			testkit.Eventually(t, "the relay listens for "+k.Name, func() bool { return isListening(k.Listen) })
		}
	}
	return r
}

func echoDatagrams(t *testing.T, at netip.AddrPort) {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 4096)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			c.WriteToUDPAddrPort(b[:n], from)
		}
	}()
}

// findLink returns a link by its name.
func findLink(t *testing.T, p *fleet.Files, name string) fleet.Link {
	t.Helper()
	i := slices.IndexFunc(p.Links(), func(k fleet.Link) bool { return k.Name == name })
	if i < 0 {
		t.Fatalf("no link %s", name)
	}
	return p.Links()[i]
}

// dialLink connects through the relay.
func dialLink(t *testing.T, k fleet.Link) net.Conn {
	t.Helper()
	network := "tcp"
	if k.Datagrams {
		network = "udp"
	}
	c, err := net.DialTimeout(network, k.Listen.String(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// echo sends a message and waits for its echo.
func echo(c net.Conn, within time.Duration) (time.Duration, error) {
	start := time.Now()
	c.SetDeadline(start.Add(within))
	if _, err := c.Write([]byte("sixteen bytes...")); err != nil {
		return 0, err
	}
	buf := make([]byte, 16)
	if _, err := c.Read(buf); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}

// spawnFleet runs the fleet's processes, which are this test binary, and returns its Injector.
func spawnFleet(t *testing.T) (*fleet.Files, *fleet.Processes, Injector) {
	t.Helper()
	p := writeFleet(t, true)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ps, err := fleet.SpawnAll(p, binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := ps.Stop(ctx); err != nil {
			t.Errorf("stopping the fleet: %v", err)
		}
		left, _ := exec.Command("pgrep", "-f", p.Dir).Output()
		if len(left) > 0 {
			t.Errorf("processes are left: %s", left)
		}
		if t.Failed() {
			for _, id := range []string{"fault-relay", "fault-agent"} {
				text, _ := os.ReadFile(p.LogPath(id))
				t.Logf("log of %s:\n%s", id, text)
			}
		}
	})
	for _, n := range p.Nodes {
		testkit.Eventually(t, n.ID()+" listens", func() bool { return findOutage(p, n.ID()) == "" })
	}
	in, err := Open(p.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p, ps, in
}

// expectPhase verifies a fault until it has a phase.
func expectPhase(t *testing.T, in Injector, id string, want Phase) State {
	t.Helper()
	var s State
	testkit.Eventually(t, id+" is "+string(want), func() bool {
		var err error
		s, err = in.Verify(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return s.Phase == want
	})
	t.Logf("%s %s: %s", id, s.Phase, s.Probe)
	return s
}

func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }
