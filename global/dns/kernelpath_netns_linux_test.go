package dns

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/spillway-lb/spillway/internal/testkit"
)

// envNamespace marks the process that runs in a network namespace of its own.
const envNamespace = "SPILLWAY_TEST_NAMESPACE"

// TestKernelPathBetweenNamespaces runs a server and a client in two network namespaces, joined by a pair of virtual
// interfaces, and requires that the program answers plain queries and the sockets the others.
func TestKernelPathBetweenNamespaces(t *testing.T) {
	if os.Getenv(envNamespace) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKernelPathBetweenNamespaces$", "-test.v")
		cmd.Env = append(os.Environ(), envNamespace+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		out, err := cmd.CombinedOutput()
		switch {
		case bytes.Contains(out, []byte("--- SKIP")), err != nil && len(out) == 0:
			t.Skipf("no network namespace with a program here: %v %s", err, out)
		case err != nil:
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	w := newMappedSnapshot(t)
	loadProgram(t, w, nil) // or skip
	client := newClientNamespace(t)
	s := startServer(t, w.fakeSnapshot, func(c *Config) {
		c.Listen, c.XDP, c.Snapshot = []string{"10.99.0.1:53"}, []string{"server"}, func() Snapshot { return w }
	})
	if s.kernel == nil {
		t.Skip("the kernel does not load the program here")
	}
	p := newPathPair(w.fakeSnapshot)
	p.slow.snapshot = func() Snapshot { return w }
	var conn *net.UDPConn
	client.run(func() error {
		to := netip.MustParseAddrPort("10.99.0.1:53")
		c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
		conn = c
		return err
	})
	defer conn.Close()
	ask := func(q []byte) []byte {
		t.Helper()
		b := make([]byte, maxUDPSize)
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Write(q); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return b[:n]
	}
	counted := func() uint64 {
		n, err := s.kernel.responder.Counts()
		if err != nil {
			t.Fatal(err)
		}
		return n[0] + n[1]
	}
	q := subnetQuery("Chat.api.example.", dns.TypeA, netip.PrefixFrom(w.clientsOf(1)[0], 24))
	testkit.Eventually(t, "the program answers", func() bool {
		ask(q)
		return counted() > 0
	})
	buf := make([]byte, maxUDPSize)
	for i, from := range w.clientsOf(20) {
		q := subnetQuery("chaT.api.example.", dns.TypeA, netip.PrefixFrom(from, 24))
		q[0], q[1] = 7, byte(i)
		before, got := counted(), ask(q)
		n, _, ok := p.fast.answerQuery(buf, q, netip.MustParseAddr("10.99.0.2"), time.Now())
		if !ok || !bytes.Equal(got, buf[:n]) || counted() != before+1 {
			t.Fatalf("to %x: %x, want %x; %d answers by the program", q, got, buf[:n], counted()-before)
		}
	}
	before := counted()
	if m := unpackMessage(t, ask(plainQuery("api.example.", dns.TypeSOA))); len(m.Answer) != 1 || counted() != before {
		t.Errorf("SOA: %v; %d answers by the program", m, counted()-before)
	}
	if out := runIP(t, "link", "show", "server"); !strings.Contains(out, "xdp") {
		t.Errorf("no program is attached: %s", out)
	}
	s.kernel.responder.Detach()
	if out := runIP(t, "link", "show", "server"); strings.Contains(out, "xdp") {
		t.Errorf("the program is still attached: %s", out)
	}
	if !bytes.Equal(ask(q), ask(q)) || counted() != before {
		t.Error("the sockets do not serve without the program")
	}
}

// clientNamespace is a network namespace of one thread.
type clientNamespace struct {
	t    *testing.T
	jobs chan func()
}

// newClientNamespace makes the namespace of the client, and the interfaces "server" here and "client" there.
func newClientNamespace(t *testing.T) *clientNamespace {
	c := &clientNamespace{t: t, jobs: make(chan func())}
	ready := make(chan error)
	thread := 0
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine, because it is never unlocked
		thread = unix.Gettid()
		ready <- unix.Unshare(unix.CLONE_NEWNET)
		for job := range c.jobs {
			job()
		}
	}()
	t.Cleanup(func() { close(c.jobs) })
	if err := <-ready; err != nil {
		t.Skip("no further network namespace: ", err)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("the program ip is missing (Debian: apt-get install iproute2)")
	}
	if out, err := exec.Command("ip", "link", "add", "server", "type", "veth", "peer", "name", "client", "netns", fmt.Sprint(thread)).CombinedOutput(); err != nil {
		t.Skipf("no virtual interfaces here: %v %s", err, out)
	}
	runIP(t, "addr", "add", "10.99.0.1/24", "dev", "server")
	runIP(t, "link", "set", "server", "up")
	c.run(func() error {
		runIP(t, "addr", "add", "10.99.0.2/24", "dev", "client")
		runIP(t, "link", "set", "client", "up")
		return attachPass(t, "client")
	})
	return c
}

// run runs a function in the namespace.
func (c *clientNamespace) run(job func() error) {
	c.t.Helper()
	done := make(chan error)
	c.jobs <- func() { done <- job() }
	if err := <-done; err != nil {
		c.t.Fatal(err)
	}
}

// attachPass attaches a program that passes everything: a virtual interface needs one to receive what its peer's program
// sends.
func attachPass(t *testing.T, name string) error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		return err
	}
	defer p.Close()
	at, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: at.Index})
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = l.Close() })
	return nil
}

func runIP(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		t.Errorf("ip %s: %v %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
