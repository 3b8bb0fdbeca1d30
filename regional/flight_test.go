package regional_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// cable carries datagrams between one child and a parent until it is cut. Neither end is told of the cut.
type cable struct {
	near *net.UDPConn
	cut  atomic.Bool
}

func newCable(t *testing.T, far net.Addr) *cable {
	t.Helper()
	near, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	up, err := net.DialUDP("udp", nil, far.(*net.UDPAddr))
	must(t, err)
	c := &cable{near: near}
	var child atomic.Pointer[net.UDPAddr]
	var pumps sync.WaitGroup
	pump := func(read func([]byte) (int, error), write func([]byte)) {
		pumps.Go(func() {
			for buf := make([]byte, 64<<10); ; {
				n, err := read(buf)
				if err != nil {
					return
				}
				if !c.cut.Load() {
					write(buf[:n])
				}
			}
		})
	}
	pump(func(b []byte) (int, error) {
		n, from, err := near.ReadFromUDP(b)
		child.Store(from)
		return n, err
	}, func(b []byte) { _, _ = up.Write(b) })
	pump(up.Read, func(b []byte) { _, _ = near.WriteToUDP(b, child.Load()) })
	t.Cleanup(func() {
		_ = near.Close()
		_ = up.Close()
		pumps.Wait()
	})
	return c
}

func (c *cable) addr() string { return c.near.LocalAddr().String() }

// tally waits until a gateway says that its zones have so much together, and chooses by that: what it says is newer than
// the view that requests choose from, by as long as a view may take.
func (w *world) tally(region string, total int64) {
	w.t.Helper()
	eventually(w.t, "the zones' workers are summed up", func() bool {
		s := w.heard(capacity.Path{Region: region, Instance: region + "-gw"})
		return s != nil && s.Model("small") != nil && s.Model("small").Total == total && w.gates[region].Workers("small") == total
	})
}

// behind is a model that costs more than another, so that it is the second choice.
func behind(name string) capacity.Model {
	m := small(name)
	m.Ahead = [3]int64{400_000, 400_000, 400_000}
	return m
}

// frozen accepts requests and never answers.
func frozen(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func TestFrozenLocalsRequestsGoElsewhereOnceItIsLost(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	c := newCable(t, g.UplinkAddr())
	a := w.localBehind(c.addr(), "fra", "fra-a", frozen, small("small"))
	b := w.local(g, "fra", "fra-b", reply, behind("small"))
	w.tally("fra", 4)
	w.served(g, "small")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if resp, body := w.ask(g, call{key: "key-acme", body: ask}); resp.StatusCode != 200 || !strings.Contains(body, "hi") {
				t.Errorf("got %d %s", resp.StatusCode, body)
			}
		})
	}
	eventually(t, "all are under way at the first zone", func() bool { return len(a.hits) == 8 })
	began := time.Now()
	c.cut.Store(true)
	wg.Wait()
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("it took %v, want the loss to be known in 1.5 s", d)
	}
	if len(b.hits) != 8 {
		t.Errorf("the second zone served %d of 8", len(b.hits))
	}
	if hop, err := relay.ParseHop((<-b.hits).Header); err != nil || hop.RetriesLeft != 0 {
		t.Errorf("the second try may be tried again: %+v (%v)", hop, err)
	}
}

func TestFrozenLocalsStreamEndsWithAnErrorEvent(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	c := newCable(t, g.UplinkAddr())
	w.localBehind(c.addr(), "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		sse(rw, token)
		<-r.Context().Done()
	}, small("small"))
	w.served(g, "small")
	resp, err := w.do(context.Background(), g, call{key: "key-acme", body: ask})
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReader(resp.Body)
	if line, err := in.ReadString('\n'); err != nil || line != "data: "+token+"\n" {
		t.Fatalf("first event is %q (%v)", line, err)
	}
	began := time.Now()
	c.cut.Store(true)
	rest, err := io.ReadAll(in)
	if err != nil || string(rest) != "\n"+string(openai.UpstreamLost().Event()) {
		t.Fatalf("the end is %q (%v)", rest, err)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("it took %v", d)
	}
}

// Telemetry that is cut off by itself must not cost a stream that goes on, nor a request that only this zone can serve.
func TestCutTelemetryAloneEndsNothing(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	c := newCable(t, g.UplinkAddr())
	answer := make(chan struct{})
	l := w.localBehind(c.addr(), "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get(relay.HeaderClass) == "interactive" {
			<-answer
			reply(rw, r)
			return
		}
		for {
			select {
			case <-answer:
				sse(rw, "[DONE]")
				return
			case <-time.After(20 * time.Millisecond):
				sse(rw, token)
			}
		}
	}, small("small"))
	w.served(g, "small")
	var wg sync.WaitGroup
	for key, end := range map[string]string{"key-acme": "[DONE]\n\n", "key-urgent": "}}"} {
		wg.Go(func() {
			if resp, body := w.ask(g, call{key: key, body: ask}); resp.StatusCode != 200 || !strings.HasSuffix(body, end) {
				t.Errorf("%s got %d, %d bytes that do not end with %q", key, resp.StatusCode, len(body), end)
			}
		})
	}
	eventually(t, "both are under way", func() bool { return len(l.hits) == 2 })
	c.cut.Store(true)
	time.Sleep(4 * time.Second) // past the loss and the silence that a dead stream is allowed
	close(answer)
	wg.Wait()
	if len(l.hits) != 2 {
		t.Errorf("the zone was asked %d times, want 2", len(l.hits))
	}
}

func TestFrozenPeerIsLeftOnceTheGlobalTierNamesItNoMore(t *testing.T) {
	w := newWorld(t)
	fra := w.gateway("fra", nil)
	well := w.gateway("iad", nil)
	w.local(well, "iad", "iad-a", reply, small("small"))
	w.served(well, "small")
	stuck, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts for a process that does nothing
	must(t, err)
	defer func() { _ = stuck.Close() }()
	room := capacity.Summary{Models: []capacity.Model{small("small")}}
	name := func(addr net.Addr) {
		w.change(func(d *uplink.Directive) {
			d.Peers = []uplink.Peer{{Region: "iad", Gateways: []uplink.PeerGateway{{Name: "iad-gw", Endpoint: addr.String()}}, Summary: &room, RTT: 90 * time.Millisecond}}
		})
	}
	name(stuck.Addr())
	w.served(fra, "small")
	done := make(chan string, 1)
	go func() {
		resp, body := w.ask(fra, call{key: "key-acme", body: ask})
		done <- resp.Status + body
	}()
	conn, err := stuck.Accept()
	must(t, err)
	defer func() { _ = conn.Close() }()
	name(well.PeerAddr())
	if got := <-done; !strings.HasPrefix(got, "200") {
		t.Fatalf("got %s", got)
	}
}
