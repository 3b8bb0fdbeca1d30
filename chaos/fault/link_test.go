package fault

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// injectHere injects a fault into a relay of this process and clears it at the end.
func injectHere(t *testing.T, r *relay, s Spec) {
	t.Helper()
	if s.Lease == 0 {
		s.Lease = time.Minute
	}
	if err := r.place.inject(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func expectPhaseHere(t *testing.T, r *relay, id string, want Phase) {
	t.Helper()
	s, err := r.place.verify(t.Context(), id)
	if err != nil || s.Phase != want {
		t.Fatalf("%s is %s, want %s: %s %v", id, s.Phase, want, s.Probe, err)
	}
	t.Logf("%s %s: %s", id, s.Phase, s.Probe)
}

func clearHere(t *testing.T, r *relay, id string) {
	t.Helper()
	if err := r.place.clear(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	expectPhaseHere(t, r, id, PhaseCleared)
}

const (
	peerLink   = "peer:frankfurt-gw1>tokyo-gw1"
	uplinkLink = "uplink:frankfurt-gw1>g1"
)

// TestDelayedLinks: TCP and UDP get the delay, in the direction that is asked for, and lose it when the lease ends.
func TestDelayedLinks(t *testing.T) {
	r := openTestRelay(t, true)
	for _, name := range []string{"raft:g1>g2", uplinkLink} {
		c := dialLink(t, findLink(t, r.files, name))
		if _, err := echo(c, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		injectHere(t, r, Spec{ID: "both", Kind: LinkDelay, Target: Target{Link: name}, Params: map[string]string{"delay": "60ms"}})
		injectHere(t, r, Spec{ID: "back", Kind: LinkDelay, Target: Target{Link: name}, Params: map[string]string{"delay": "40ms", "direction": "back"}})
		if took, err := echo(c, 5*time.Second); err != nil || took < 160*time.Millisecond {
			t.Errorf("%s: a round trip took %s, want 160 ms: %v", name, took, err)
		}
		expectPhaseHere(t, r, "both", PhaseActive)
		clearHere(t, r, "back")
		if took, err := echo(c, 5*time.Second); err != nil || took < 120*time.Millisecond {
			t.Errorf("%s: a round trip took %s, want 120 ms: %v", name, took, err)
		}
		clearHere(t, r, "both")
		fastest := time.Hour
		for range 20 {
			took, err := echo(c, 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			fastest = min(fastest, took)
		}
		if fastest > 50*time.Millisecond {
			t.Errorf("%s: after the fault the fastest round trip takes %s", name, fastest)
		}
	}
	injectHere(t, r, Spec{ID: "short", Kind: LinkDelay, Target: Target{Link: "raft:g1>g2"}, Params: map[string]string{"delay": "60ms"}, Lease: MinLease})
	testkit.Eventually(t, "the lease ends by itself", func() bool { return r.place.describeID("short").Phase == PhaseCleared })
	expectPhaseHere(t, r, "short", PhaseCleared)
}

// TestLinksHaveTheRoundTripOfTheirDistance: without any fault a link has the delay of the layout.
func TestLinksHaveTheRoundTripOfTheirDistance(t *testing.T) {
	r := openTestRelay(t, false)
	for _, name := range []string{peerLink, "uplink:frankfurt-gw1>g1"} {
		k := findLink(t, r.files, name)
		c := dialLink(t, k)
		echo(c, 5*time.Second) // the first waits for the handshake too
		took, err := echo(c, 5*time.Second)
		if err != nil || took < k.RTT || k.RTT < 80*time.Millisecond {
			t.Errorf("%s: a round trip took %s, want %s: %v", name, took, k.RTT, err)
		}
		t.Logf("%s: %s of %s", name, took, k.RTT)
	}
	if l := r.lateness.readLateness(); l.Count == 0 || l.Worst == 0 {
		t.Errorf("lateness: %+v", l)
	}
}

// TestPartitionedStreamsWaitAndContinue: a partition holds the bytes of an open connection and a new one, closes neither,
// and both continue when it ends. The far end does not learn that the near one left.
func TestPartitionedStreamsWaitAndContinue(t *testing.T) {
	r := openTestRelay(t, true)
	k := findLink(t, r.files, peerLink)
	c := dialLink(t, k)
	if _, err := echo(c, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	injectHere(t, r, Spec{ID: "cut", Kind: LinkPartition, Target: Target{Link: peerLink}})
	if _, err := echo(c, 200*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("across a partition: %v", err)
	}
	late := dialLink(t, k)
	if _, err := echo(late, 200*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new connection across a partition: %v", err)
	}
	expectPhaseHere(t, r, "cut", PhaseActive)
	clearHere(t, r, "cut")
	for _, conn := range []net.Conn{c, late} {
		conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadFull(conn, make([]byte, 16)); err != nil {
			t.Errorf("what was sent during the partition did not come back: %v", err)
		}
	}
}

// TestOneWayPartition: what is sent in one direction passes and the answers do not.
func TestOneWayPartition(t *testing.T) {
	r := openTestRelay(t, true)
	c := dialLink(t, findLink(t, r.files, uplinkLink))
	if _, err := echo(c, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	// Seen from g1, which listens on this link, only what comes in is lost.
	injectHere(t, r, Spec{ID: "in", Kind: LinkPartition, Target: Target{Node: "g1"}, Params: map[string]string{"direction": "in", "class": "uplink"}})
	forward, _ := r.links[uplinkLink].forward.loadEffect()
	back, _ := r.links[uplinkLink].back.loadEffect()
	if !forward.cut || back.cut {
		t.Errorf("cut forward %v, back %v, want only forward", forward.cut, back.cut)
	}
	if _, err := echo(c, 100*time.Millisecond); err == nil {
		t.Error("a datagram crossed the partition")
	}
	expectPhaseHere(t, r, "in", PhaseActive)
	clearHere(t, r, "in")
	if _, err := echo(c, 5*time.Second); err != nil {
		t.Error(err)
	}
}

// TestRegionPartition: the kind of the simulator cuts the links that cross a region's border and no others.
func TestRegionPartition(t *testing.T) {
	r := openTestRelay(t, true)
	injectHere(t, r, Spec{ID: "region", Kind: Partition, Target: Target{Region: "frankfurt"}})
	for name, l := range r.links {
		inside := func(id string) bool { return strings.HasPrefix(id, "frankfurt") || id == "g2" } // g2 is in the second region
		e, _ := l.forward.loadEffect()
		if want := inside(l.From) != inside(l.To); e.cut != want {
			t.Errorf("%s is cut: %v, want %v", name, e.cut, want)
		}
	}
	clearHere(t, r, "region")
	injectHere(t, r, Spec{ID: "globals", Kind: Partition, Target: Target{Region: "frankfurt"}, Params: map[string]string{"from": "global"}})
	var cut []string
	for name, l := range r.links {
		if e, _ := l.forward.loadEffect(); e.cut {
			cut = append(cut, name)
		}
	}
	slices.Sort(cut)
	if want := []string{"uplink:frankfurt-gw1>g1", "uplink:frankfurt-gw1>g2", "uplink:frankfurt-gw1>g3"}; !slices.Equal(cut, want) {
		t.Errorf("cut from the global nodes: %v, want %v", cut, want)
	}
	clearHere(t, r, "globals")
}

func TestResetLinksRefuseConnections(t *testing.T) {
	r := openTestRelay(t, true)
	k := findLink(t, r.files, peerLink)
	c := dialLink(t, k)
	if _, err := echo(c, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	injectHere(t, r, Spec{ID: "reset", Kind: LinkReset, Target: Target{Link: peerLink}})
	if _, err := echo(c, 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an open connection: %v, want a reset", err)
	}
	if _, err := echo(dialLink(t, k), 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new connection: %v, want a reset", err)
	}
	expectPhaseHere(t, r, "reset", PhaseActive)
	clearHere(t, r, "reset")
	if _, err := echo(dialLink(t, k), 5*time.Second); err != nil {
		t.Errorf("after the fault: %v", err)
	}
}

// TestBlackholeTakesBytes: writes succeed and nothing arrives; the connection that lost bytes is reset at the end, because
// a stream with a hole must not continue.
func TestBlackholeTakesBytes(t *testing.T) {
	r := openTestRelay(t, true)
	for _, name := range []string{peerLink, uplinkLink} {
		k := findLink(t, r.files, name)
		c := dialLink(t, k)
		if _, err := echo(c, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		injectHere(t, r, Spec{ID: "hole", Kind: LinkBlackhole, Target: Target{Link: name}})
		if _, err := echo(c, 200*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: through a black hole: %v", name, err)
		}
		expectPhaseHere(t, r, "hole", PhaseActive)
		clearHere(t, r, "hole")
		_, err := echo(c, 5*time.Second)
		if k.Datagrams != (err == nil) {
			t.Errorf("%s: after a black hole: %v", name, err)
		}
		if _, err := echo(dialLink(t, k), 5*time.Second); err != nil {
			t.Errorf("%s: a new connection: %v", name, err)
		}
	}
}

// TestHalfOpenConnections: the listener's side is closed, and the dialer is not notified until the fault ends.
func TestHalfOpenConnections(t *testing.T) {
	r := openTestRelay(t, true)
	k := findLink(t, r.files, peerLink)
	c := dialLink(t, k)
	if _, err := echo(c, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	injectHere(t, r, Spec{ID: "half", Kind: LinkHalfOpen, Target: Target{Link: peerLink}})
	for range 2 {
		if _, err := echo(c, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a half-open connection: %v", err)
		}
	}
	expectPhaseHere(t, r, "half", PhaseActive)
	clearHere(t, r, "half")
	if _, err := echo(c, 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the fault: %v, want a reset", err)
	}
}

// TestLossyLinks: datagrams are lost, streams stall and lose nothing, and both recover.
func TestLossyLinks(t *testing.T) {
	r := openTestRelay(t, true)
	udp, tcp := dialLink(t, findLink(t, r.files, uplinkLink)), dialLink(t, findLink(t, r.files, peerLink))
	for _, c := range []net.Conn{udp, tcp} {
		if _, err := echo(c, 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{uplinkLink, peerLink} {
		injectHere(t, r, Spec{ID: "loss-" + name[:4], Kind: LinkLoss, Target: Target{Link: name}, Params: map[string]string{"share": "0.5", "stall": "100ms"}})
	}
	lost, slowest := 0, time.Duration(0)
	for range 20 {
		if _, err := echo(udp, 50*time.Millisecond); err != nil {
			lost++
		}
		took, err := echo(tcp, 10*time.Second)
		if err != nil {
			t.Fatalf("a stream lost bytes: %v", err)
		}
		slowest = max(slowest, took)
	}
	if lost < 5 || slowest < 100*time.Millisecond { // 15 of 20 are expected to be lost: fewer than 5 has a chance of 4e-6
		t.Errorf("%d of 20 datagrams were lost, the slowest round trip of the stream took %s", lost, slowest)
	}
	for _, name := range []string{uplinkLink, peerLink} {
		expectPhaseHere(t, r, "loss-"+name[:4], PhaseActive)
		clearHere(t, r, "loss-"+name[:4])
	}
}

// TestDuplicatedReorderedAndRateLimitedDatagrams: each effect shows, and is gone after the fault.
func TestDuplicatedReorderedAndRateLimitedDatagrams(t *testing.T) {
	r := openTestRelay(t, true)
	c := dialLink(t, findLink(t, r.files, uplinkLink))
	send := func(n int) (got []byte) {
		for i := range n {
			if _, err := c.Write([]byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
		buf := make([]byte, 100)
		for {
			c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			if _, err := c.Read(buf); err != nil {
				return got
			}
			got = append(got, buf[0])
		}
	}
	inject := func(k Kind, params map[string]string) {
		injectHere(t, r, Spec{ID: string(k), Kind: k, Target: Target{Link: uplinkLink}, Params: params})
	}
	if got := send(50); len(got) != 50 || !slices.IsSorted(got) {
		t.Fatalf("without a fault: %v", got)
	}
	inject(LinkDuplicate, map[string]string{"share": "1", "direction": "forward"})
	if got := send(20); len(got) != 40 {
		t.Errorf("%d echoes of 20 duplicated datagrams, want 40", len(got))
	}
	expectPhaseHere(t, r, string(LinkDuplicate), PhaseActive)
	clearHere(t, r, string(LinkDuplicate))

	inject(LinkReorder, map[string]string{"share": "0.5", "delay": "30ms"})
	if got := send(50); len(got) != 50 || slices.IsSorted(got) {
		t.Errorf("reordered: %v", got)
	}
	clearHere(t, r, string(LinkReorder))

	inject(LinkJitter, map[string]string{"jitter": "50ms"})
	if got := send(50); len(got) != 50 || !slices.IsSorted(got) {
		t.Errorf("with jitter the order changed: %v", got)
	}
	expectPhaseHere(t, r, string(LinkJitter), PhaseActive)
	clearHere(t, r, string(LinkJitter))

	inject(LinkRate, map[string]string{"rate": "1000", "direction": "forward"}) // a byte takes 8 ms: the queue holds 25
	if got := send(100); len(got) < 20 || len(got) > 60 {
		t.Errorf("%d of 100 datagrams passed a link of 1 kbit/s with a queue of 200 ms", len(got))
	}
	clearHere(t, r, string(LinkRate))
	if got := send(50); len(got) != 50 || !slices.IsSorted(got) {
		t.Errorf("after the faults: %v", got)
	}
}

// TestDeadTargetRefusesConnections: behind a relay a node that does not listen refuses connections as it would without.
func TestDeadTargetRefusesConnections(t *testing.T) {
	p := writeFleet(t, true)
	k := findLink(t, p, peerLink)
	g := newTCPListener(p, k.Listen, k.Forward, &listenTable{}, testLog(t))
	g.links = []*relayLink{{Link: k, forward: newDirection(0, 1), back: newDirection(0, 2), lateness: &latenessMeter{}, conns: map[*relayConn]bool{}}}
	ended := make(chan struct{})
	go func() { defer close(ended); g.run() }()
	defer func() { g.close(); <-ended }()
	if _, err := net.Dial("tcp", k.Listen.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("before the target listens: %v", err)
	}
	for range 2 {
		ln, err := net.Listen("tcp", k.Forward.String())
		if err != nil {
			t.Fatal(err)
		}
		go echoConns(ln)
		testkit.Eventually(t, "the relay listens", func() bool { return isListening(k.Listen) })
		if _, err := echo(dialLink(t, k), 5*time.Second); err != nil {
			t.Error(err)
		}
		ln.Close()
		testkit.Eventually(t, "the relay refuses connections", func() bool {
			c, err := net.Dial("tcp", k.Listen.String())
			if err == nil {
				c.SetDeadline(time.Now().Add(5 * time.Second))
				c.Read(make([]byte, 1)) // the relay learns from the first one that the target is gone
				c.Close()
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		})
	}
}

func TestUnknownTargetsAreRefusedWithThoseOfTheFleet(t *testing.T) {
	l := fleet.Layout{Globals: 3, Regions: 2, Gateways: 1, Zones: 1, Workers: 1, Relays: true}
	links := l.BuildLinks()
	for want, s := range map[string]Spec{
		"no link matches link \"raft:g9>*\": links are named like raft:g":   {Kind: LinkReset, Target: Target{Link: "raft:g9>*"}},
		"the fleet has no region \"mars\": use one of frankfurt, virginia":  {Kind: Partition, Target: Target{Region: "mars"}},
		"the fleet has no zone \"frankfurt\": use one of frankfurt/a, virg": {Kind: LinkReset, Target: Target{Zone: "frankfurt"}},
		"class \"dns\": use one or more of raft, uplink":                    {Kind: LinkReset, Target: Target{Node: "g1"}, Params: map[string]string{"class": "raft+dns"}},
		"from \"x\" is no node, zone, region or \"global\": use one of":     {Kind: LinkReset, Target: Target{Node: "g1"}, Params: map[string]string{"from": "x"}},
		"the fleet has no worker \"w9\": use one of frankfurt-a-w1":         {Kind: LinkReset, Target: Target{Worker: "w9"}},
	} {
		if _, err := selectLinks(l, links, s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
