package regional_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/timed"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// udpLink carries datagrams between one child and a parent until it is cut. Neither end is notified of the cut.
type udpLink struct {
	near *net.UDPConn
	cut  atomic.Bool
}

func newUDPLink(t *testing.T, far net.Addr) *udpLink {
	t.Helper()
	near, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	requireNoError(t, err)
	up, err := net.DialUDP("udp", nil, far.(*net.UDPAddr))
	requireNoError(t, err)
	c := &udpLink{near: near}
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

func (c *udpLink) linkAddr() string { return c.near.LocalAddr().String() }

// waitForWorkerTotal waits until a gateway reports this worker total for its zones and uses it for its choices.
// The report is newer than the view that requests use, by the interval between views.
func (w *testWorld) waitForWorkerTotal(region string, total int64) {
	w.t.Helper()
	testkit.Eventually(w.t, "the zones' workers are summed up", func() bool {
		s := w.lastSummary(capacity.Path{Region: region, Instance: region + "-gw"})
		return s != nil && s.FindModel("small") != nil && s.FindModel("small").Total == total && w.gateways[region].CountWorkers("small") == total
	})
}

// backloggedModel is a model with a higher cost than another, so that it is the second choice.
func backloggedModel(name string) *capacity.ModelCapacity {
	m := roomyModel(name)
	m.WorkAhead = [3]int64{400_000, 400_000, 400_000}
	return m
}

// hangUntilCancelled accepts requests and never responds.
func hangUntilCancelled(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func TestRequestsLeaveUnreachableLocal(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	c := newUDPLink(t, g.UplinkAddr())
	a := w.startLocalAt(c.linkAddr(), "fra", "fra-a", hangUntilCancelled, roomyModel("small"))
	b := w.startLocal(g, "fra", "fra-b", replyCompletion, backloggedModel("small"))
	w.waitForWorkerTotal("fra", 4)
	w.waitUntilServed(g, "small")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: askBody}); resp.StatusCode != 200 || !strings.Contains(body, "hi") {
				t.Errorf("got %d %s", resp.StatusCode, body)
			}
		})
	}
	testkit.Eventually(t, "all are under way at the first zone", func() bool { return len(a.requests) == 8 })
	began := time.Now()
	c.cut.Store(true)
	wg.Wait()
	timed.AssertWithin(t, "requests of a frozen zone served by the other", time.Since(began), 3*time.Second)
	if len(b.requests) != 8 {
		t.Errorf("the second zone served %d of 8", len(b.requests))
	}
	if hop, err := forward.ParseHop((<-b.requests).Header); err != nil || hop.RetriesLeft != 0 {
		t.Errorf("the second try may be tried again: %+v (%v)", hop, err)
	}
}

func TestStreamFromUnreachableLocalEndsWithError(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	c := newUDPLink(t, g.UplinkAddr())
	w.startLocalAt(c.linkAddr(), "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		writeEvents(rw, tokenEvent)
		<-r.Context().Done()
	}, roomyModel("small"))
	w.waitUntilServed(g, "small")
	resp, err := w.sendCall(context.Background(), g, clientCall{key: "key-acme", body: askBody})
	requireNoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReader(resp.Body)
	if line, err := in.ReadString('\n'); err != nil || line != "data: "+tokenEvent+"\n" {
		t.Fatalf("first event is %q (%v)", line, err)
	}
	began := time.Now()
	c.cut.Store(true)
	rest, err := io.ReadAll(in)
	if err != nil || string(rest) != "\n"+string(openai.UpstreamLost().StreamEvent()) {
		t.Fatalf("the end is %q (%v)", rest, err)
	}
	timed.AssertWithin(t, "the end of a frozen zone's stream", time.Since(began), 5*time.Second)
}

// Loss of telemetry alone must not end a stream that goes on, nor a request that only this zone can serve.
func TestLostTelemetryAloneEndsNoRequests(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	c := newUDPLink(t, g.UplinkAddr())
	answer := make(chan struct{})
	l := w.startLocalAt(c.linkAddr(), "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get(forward.HeaderClass) == "interactive" {
			<-answer
			replyCompletion(rw, r)
			return
		}
		for {
			select {
			case <-answer:
				writeEvents(rw, "[DONE]")
				return
			case <-time.After(20 * time.Millisecond):
				writeEvents(rw, tokenEvent)
			}
		}
	}, roomyModel("small"))
	w.waitUntilServed(g, "small")
	var wg sync.WaitGroup
	for key, end := range map[string]string{"key-acme": "[DONE]\n\n", "key-urgent": "}}"} {
		wg.Go(func() {
			if resp, body := w.getAnswer(g, clientCall{key: key, body: askBody}); resp.StatusCode != 200 || !strings.HasSuffix(body, end) {
				t.Errorf("%s got %d, %d bytes that do not end with %q", key, resp.StatusCode, len(body), end)
			}
		})
	}
	testkit.Eventually(t, "both are under way", func() bool { return len(l.requests) == 2 })
	c.cut.Store(true)
	// Longer than the loss detection and the silence that a stream may have.
	testkit.HoldsFor(t, 4*time.Second, "both requests stay at the zone", func() bool { return len(l.requests) == 2 })
	close(answer)
	wg.Wait()
	if len(l.requests) != 2 {
		t.Errorf("the zone was asked %d times, want 2", len(l.requests))
	}
}

func TestRequestsLeaveFrozenPeerDroppedByGlobalTier(t *testing.T) {
	w := newWorld(t)
	fra := w.startGateway("fra", nil)
	well := w.startGateway("iad", nil)
	w.startLocal(well, "iad", "iad-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(well, "small")
	stuck, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, the process never reads them
	requireNoError(t, err)
	defer func() { _ = stuck.Close() }()
	room := capacity.Summary{Models: []*capacity.ModelCapacity{roomyModel("small")}}
	name := func(addr net.Addr) {
		w.changeDirective(func(d *uplink.Directive) {
			d.Peers = []uplink.PeerRegion{{Region: "iad", Gateways: []uplink.PeerGateway{{Name: "iad-gw", Endpoint: addr.String()}}, Summary: &room, RTT: 90 * time.Millisecond}}
		})
	}
	name(stuck.Addr())
	w.waitUntilServed(fra, "small")
	done := make(chan string, 1)
	go func() {
		resp, body := w.getAnswer(fra, clientCall{key: "key-acme", body: askBody})
		done <- resp.Status + body
	}()
	conn, err := stuck.Accept()
	requireNoError(t, err)
	defer func() { _ = conn.Close() }()
	name(well.PeerAddr())
	if got := <-done; !strings.HasPrefix(got, "200") {
		t.Fatalf("got %s", got)
	}
}

// A gateway whose time to stop is over ends its streams with an error event, and never within an event.
func TestStopEndsStreamsWithAnEvent(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	hang := func(rw http.ResponseWriter, r *http.Request) bool {
		_, _ = io.WriteString(rw, `data: {"id":"x","choices":[{"index":0,"delta":{"content":"torn`)
		rw.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	p := newScriptedZone("p", nil)
	serve := func(rw http.ResponseWriter, r *http.Request) {
		p.breaks = func(rw http.ResponseWriter, said int) bool { return said == 2 && hang(rw, r) }
		p.serveStream(rw, r)
	}
	w.startLocal(g, "fra", "fra-a", serve, roomyModel("small"))
	w.startLocal(g, "fra", "fra-b", serve, roomyModel("small"))
	w.waitUntilServed(g, "small")
	resp, err := w.sendCall(context.Background(), g, clientCall{key: "key-acme", body: streamBody})
	requireNoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReader(resp.Body)
	if line, err := in.ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- g.Stop(ctx) }()
	rest, err := io.ReadAll(in)
	if err != nil || !strings.HasSuffix(string(rest), "\"upstream_lost\"}}\n\n") || strings.Contains(string(rest), "torn") {
		t.Errorf("the stream ended with %q, %v", rest, err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stopping: %v", err)
	}
	if n := p.requests.Load(); n != 1 {
		t.Errorf("a gateway that stops asked %d times", n)
	}
}

// startDeadlineWorker starts a worker that resets every call at the deadline that it received, before or after its
// response head.
func startDeadlineWorker(t *testing.T) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	requireNoError(t, err)
	s := &http.Server{Protocols: &http.Protocols{}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		var unit string
		_, _ = fmt.Sscanf(r.Header.Get("Grpc-Timeout"), "%d%s", &n, &unit)
		if strings.HasSuffix(r.URL.Path, "Begun") {
			w.Header().Set("Content-Type", "application/grpc")
			w.WriteHeader(200)
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-time.After(time.Duration(n) * time.Millisecond):
			panic(http.ErrAbortHandler)
		case <-r.Context().Done():
		}
	})}
	s.Protocols.SetUnencryptedHTTP2(true)
	var done sync.WaitGroup
	done.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { _ = s.Close(); done.Wait() })
	return l.Addr().String()
}

// A worker resets calls at their deadline, before or after the timers of its zone and its gateway. The call ends
// with its deadline, and neither the zone nor the worker counts as failed.
func TestExpiredDeadlineBlamesNoEndpoint(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.Registry = reg })
	a := w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: startSimWorker(t), GRPC: "http://" + startDeadlineWorker(t), Weight: 1})
	chat := clientCall{key: "key-acme", body: `{"model":"small","messages":[{"role":"user","content":"hi"}]}`}
	testkit.Eventually(t, "the zone serves", func() bool { resp, _ := w.getAnswer(g, chat); return resp.StatusCode == 200 })
	testkit.Eventually(t, "the zone has the spec, which adds paths", func() bool {
		_, body := w.getAnswer(g, clientCall{path: "/custom/run", key: chat.key, body: chat.body})
		return !strings.Contains(body, "no such path")
	})
	conn := w.dialGRPC(g, insecure.NewCredentials())
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			method := "/any.Service/" + []string{"Silent", "Begun"}[i%2]
			s, err := conn.NewStream(withAPIKey(t.Context(), "x-model", "small", "x-spillway-deadline-ms", fmt.Sprint(200+10*i)), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
			requireNoError(t, err)
			var out []byte
			if err := s.RecvMsg(&out); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("%s: %v", method, err)
			}
		})
	}
	all.Wait()
	if n := readMetric(t, reg, "spillway_regional_retries_total", ""); n != 0 {
		t.Errorf("%v calls were tried again", n)
	}
	for _, x := range a.Status().Workers {
		if x.State != "ready" {
			t.Errorf("the worker is %+v", x)
		}
	}
	if resp, body := w.getAnswer(g, chat); resp.StatusCode != 200 {
		t.Errorf("then comes %d %s", resp.StatusCode, body)
	}
}

// The local tier receives the remaining time of a client's deadline, from either header.
func TestDeadlineFromEitherHeaderIsForwarded(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	for _, name := range []string{forward.HeaderClientDeadline, forward.HeaderRequestTimeout} {
		resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: askBody, header: http.Header{name: {"60000"}}})
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", name, resp.StatusCode, body)
		}
		got := (<-l.requests).Header.Get(forward.HeaderDeadlineMS)
		if ms, err := strconv.Atoi(got); err != nil || ms < 1 || ms > 60000 {
			t.Errorf("%s: the local is told %q", name, got)
		}
	}
}

// A request refused for its deadline records no cached prefix, so that it is refused again when it is repeated.
func TestRefusedRequestRecordsNoPrefix(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	a := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	b := w.startLocal(g, "fra", "fra-b", replyCompletion, roomyModel("small"))
	long := `{"model":"small","max_tokens":5,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 6_000) + `"}]}`
	testkit.Eventually(t, "both zones serve", func() bool {
		resp, _ := w.getAnswer(g, clientCall{key: "key-acme", body: `{"model":"small","messages":[{"role":"user","content":"hi"}]}`})
		return resp.StatusCode == 200 && len(a.requests) > 0 && len(b.requests) > 0
	})
	late := http.Header{"X-Spillway-Deadline-Ms": {"20"}}
	for range 3 {
		if resp, text := w.getAnswer(g, clientCall{key: "key-acme", body: long, header: late}); resp.StatusCode != 504 {
			t.Fatalf("%d %.200s", resp.StatusCode, text)
		}
	}
}

// startUnresponsiveZone starts a zone whose listener accepts connections and never handshakes, like that of a
// stopped process (SIGSTOP).
func (w *testWorld) startUnresponsiveZone(g *regional.Gateway, region, zone string, model *capacity.ModelCapacity) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	requireNoError(w.t, err)
	w.t.Cleanup(func() { _ = l.Close() })
	child, err := uplink.NewChild(uplink.ChildConfig{
		Certs:   w.issueCerts(identity.ID{Role: identity.RoleLocal, Region: region, Zone: zone, Name: "l1"}),
		Parents: []string{g.UplinkAddr().String()}, ParentRole: identity.RoleGateway, Path: capacity.Path{Region: region, Zone: zone, Instance: "l1"},
		Endpoint: l.Addr().String(), Interval: 20 * time.Millisecond,
		BuildSummary: func(time.Time) capacity.Summary { return capacity.Summary{Models: []*capacity.ModelCapacity{model}} },
	})
	requireNoError(w.t, err)
	requireNoError(w.t, child.Start(w.t.Context()))
	w.t.Cleanup(func() { _ = child.Stop(stopContext(w.t)) })
}

// A zone that does not connect in time costs a request a short delay and no retry: another zone's connection is
// tried in parallel, and the request is sent once.
func TestSlowConnectIsHedgedBeforeRequestIsSent(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.Registry, c.HedgeConnect = reg, 100*time.Millisecond })
	w.startUnresponsiveZone(g, "fra", "fra-a", roomyModel("small"))
	b := w.startLocal(g, "fra", "fra-b", replyCompletion, backloggedModel("small"))
	w.waitForWorkerTotal("fra", 4)
	w.waitUntilServed(g, "small")
	resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: askBody})
	if resp.StatusCode != 200 || !strings.Contains(body, "hi") || len(b.requests) != 1 {
		t.Fatalf("got %d %s, the other zone was asked %d times", resp.StatusCode, body, len(b.requests))
	}
	want := `# HELP spillway_regional_connects_hedged_total Hedged connections to another zone because the first was slow, by outcome of the second: won or lost.
# TYPE spillway_regional_connects_hedged_total counter
spillway_regional_connects_hedged_total{outcome="won"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_regional_connects_hedged_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(reg, "spillway_regional_retries_total"); err != nil || n != 0 {
		t.Errorf("%d retries, %v", n, err)
	}
}
