package local_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover/kube/kubetest"
)

const workerToken = "a-token-of-enough-length"

func withRegistration(lease time.Duration) func(*local.Config) {
	return func(c *local.Config) {
		c.Registration = config.Registration{Listen: "127.0.0.1:0", Tokens: []string{spec.HashKey(workerToken)}, Allow: []string{"127.0.0.0/8"}, Lease: lease}
	}
}

// counterValue is that of a metric of one series.
func counterValue(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// renewUntil renews the worker's lease until ok, so that a slow machine does not lose it meanwhile.
func renewUntil(t *testing.T, a *local.Agent, w *fakeVLLM, ok func() bool) {
	t.Helper()
	testkit.Eventually(t, "the condition holds while the lease is renewed", func() bool {
		if status, text := registerWorker(t, a, "PUT", w.name, w.URL); status != 200 {
			t.Fatalf("renewing: %d %s", status, text)
		}
		return ok()
	})
}

// awaitNoWorkers waits for the end of the one worker, which may take a lease.
func awaitNoWorkers(t *testing.T, a *local.Agent) {
	t.Helper()
	testkit.Eventually(t, "the worker is gone", func() bool { return len(a.Status().Workers) == 0 })
}

func registerWorker(t *testing.T, a *local.Agent, method, name, at string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+a.RegistrationAddr().String()+"/v1/workers/"+name, strings.NewReader(`{"url":"`+at+`","gpu":"H100","labels":{"rack":"r7"}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+workerToken)
	resp, err := testClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestARegisteredWorkerServesUntilItsLeaseEnds(t *testing.T) {
	reg := telemetry.NewRegistry("local", "a", "test")
	a := startAgent(t, func(c *local.Config) { withRegistration(3 * time.Second)(c); c.Registry = reg })
	w := newFakeVLLM(t, "w1")
	if status, text := registerWorker(t, a, "PUT", "w1", w.URL); status != 200 || !strings.Contains(text, `"lease_seconds":3,`) {
		t.Fatalf("registering: %d %s", status, text)
	}
	renewUntil(t, a, w, func() bool { return countReady(a) == 1 })
	if s := a.Status().Workers[0]; s.Source != "registration" || s.Name != "w1" {
		t.Errorf("status shows %+v", s)
	}
	if resp, text := postChat(t, a, nonStreamingChat); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	w.CloseClientConnections()
	w.Close() // no DELETE
	awaitNoWorkers(t, a)
	if n, err := testutil.GatherAndCount(reg, "spillway_local_lease_expiries_total", "spillway_local_workers", "spillway_local_registrations_refused_total"); err != nil || n < 3 {
		t.Errorf("%d metrics of sources, %v", n, err)
	}
	if got := counterValue(t, reg, "spillway_local_lease_expiries_total"); got != 1 {
		t.Errorf("lease_expiries_total is %v, want 1", got)
	}
}

// TestStreamFinishesAfterWorkerLeaseEnds holds an answer until the worker has left by either way.
func TestStreamFinishesAfterWorkerLeaseEnds(t *testing.T) {
	for _, way := range []string{"expiry", "farewell"} {
		lease := time.Minute
		if way == "expiry" {
			lease = 3 * time.Second
		}
		a := startAgent(t, withRegistration(lease))
		w := newFakeVLLM(t, "w1")
		w.setMode("hold")
		if status, text := registerWorker(t, a, "PUT", "w1", w.URL); status != 200 {
			t.Fatalf("registering: %d %s", status, text)
		}
		renewUntil(t, a, w, func() bool { return countReady(a) == 1 })
		done := make(chan string, 1)
		go func() {
			resp, err := testClient.Post("http://"+a.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(streamedChat))
			if err != nil {
				done <- err.Error()
				return
			}
			defer func() { _ = resp.Body.Close() }()
			text, _ := io.ReadAll(resp.Body) // a broken answer shows in the text
			done <- string(text)
		}()
		renewUntil(t, a, w, func() bool { return w.running.Load() == 1 })
		if way == "farewell" {
			if status, text := registerWorker(t, a, "DELETE", "w1", ""); status != 200 {
				t.Fatalf("leaving: %d %s", status, text)
			}
		}
		awaitNoWorkers(t, a)
		close(w.release)
		if text := <-done; !strings.HasSuffix(text, "data: [DONE]\n\n") {
			t.Errorf("%s: the answer is %q", way, text)
		}
	}
}

// TestAWorkersRedirectsAreNotFollowed registers a worker that points the scraper and the forwarder elsewhere.
func TestAWorkersRedirectsAreNotFollowed(t *testing.T) {
	var hits atomic.Int64
	secret := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer secret.Close()
	var asked atomic.Int64
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/health":
		case r.URL.Path == "/v1/models":
			_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"llama-3.1-8b","max_model_len":8192}]}`)
		default:
			asked.Add(1)
			http.Redirect(w, r, secret.URL+r.URL.Path, http.StatusTemporaryRedirect)
		}
	}))
	defer liar.Close()
	a := startAgent(t, withRegistration(time.Minute))
	if status, text := registerWorker(t, a, "PUT", "w1", liar.URL); status != 200 {
		t.Fatalf("registering: %d %s", status, text)
	}
	testkit.Eventually(t, "the worker ready", func() bool { return countReady(a) == 1 && asked.Load() > 3 })
	noFollow := &http.Client{Transport: testClient.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := noFollow.Post("http://"+a.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(nonStreamingChat))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if hits.Load() != 0 {
		t.Errorf("the place that the worker points at was asked %d times", hits.Load())
	}
}

// fakeServiceDNS answers SRV queries with the configured ports, all at 127.0.0.1.
type fakeServiceDNS struct {
	conn  net.PacketConn
	ports atomic.Pointer[[]uint16]
}

func newFakeServiceDNS(t *testing.T) *fakeServiceDNS {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeServiceDNS{conn: conn}
	s.ports.Store(&[]uint16{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var q dnsmessage.Message
			if q.Unpack(buf[:n]) == nil {
				out, _ := s.buildAnswer(q).Pack() // what cannot be packed is not answered
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return s
}

func (s *fakeServiceDNS) buildAnswer(q dnsmessage.Message) *dnsmessage.Message {
	m := &dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true}, Questions: q.Questions}
	h := dnsmessage.ResourceHeader{Name: q.Questions[0].Name, Class: dnsmessage.ClassINET}
	switch q.Questions[0].Type {
	case dnsmessage.TypeSRV:
		for _, p := range *s.ports.Load() {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.SRVResource{Priority: 1, Weight: 1, Port: p, Target: dnsmessage.MustNewName("host.test.")}})
		}
	case dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
	}
	return m
}

func (s *fakeServiceDNS) setWorkers(t *testing.T, workers ...*fakeVLLM) {
	t.Helper()
	var ports []uint16
	for _, w := range workers {
		u, err := url.Parse(w.URL)
		if err != nil {
			t.Fatal(err)
		}
		p, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, uint16(p))
	}
	s.ports.Store(&ports)
}

func TestWorkersFollowDNS(t *testing.T) {
	dns := newFakeServiceDNS(t)
	w1, w2, w3 := newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2"), newFakeVLLM(t, "w3")
	dns.setWorkers(t, w1)
	a := startAgent(t, func(c *local.Config) {
		c.Discover = config.Discovery{
			Resolver: netip.MustParseAddrPort(dns.conn.LocalAddr().String()).String(), Interval: 100 * time.Millisecond, Grace: time.Minute,
			DNS: []config.DNSDiscovery{{Name: "_http._tcp.vllm.test", Type: config.TypeSRV, GPU: "H100", Labels: map[string]string{"pool": "x"}}},
		}
	})
	testkit.Eventually(t, "the first worker ready", func() bool { return countReady(a) == 1 })
	if s := a.Status().Workers[0]; s.Source != "dns" || !strings.HasPrefix(s.Name, "dns-127-0-0-1-") || s.GPU != "H100" {
		t.Errorf("status shows %+v", s)
	}
	dns.setWorkers(t, w1, w2, w3)
	testkit.Eventually(t, "three workers ready", func() bool { return countReady(a) == 3 })
	dns.setWorkers(t, w3)
	testkit.Eventually(t, "one worker left", func() bool { return len(a.Status().Workers) == 1 && a.Status().Workers[0].URL == w3.URL })
	if resp, text := postChat(t, a, nonStreamingChat); resp.StatusCode != 200 || w3.served.Load() != 1 {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

// writeWorkersFile replaces a workers file in one step.
func writeWorkersFile(t *testing.T, file string, workers ...*fakeVLLM) {
	t.Helper()
	var b strings.Builder
	b.WriteString("workers:\n")
	for _, w := range workers {
		fmt.Fprintf(&b, "  - {name: %s, url: %q, gpu: H100}\n", w.name, w.URL)
	}
	if err := os.WriteFile(file+".new", []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// TestWorkersFollowKubernetes finds a worker by its EndpointSlice and drains it, without replacing it, while its pod terminates.
func TestWorkersFollowKubernetes(t *testing.T) {
	api, w1, w2 := kubetest.NewServer(t), newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2")
	put := func(w *fakeVLLM, terminating bool) {
		at := netip.MustParseAddrPort(strings.TrimPrefix(w.URL, "http://"))
		e := kubetest.Endpoint("pod-"+w.name, at.Addr().String())
		if terminating {
			e = kubetest.Terminating(e)
		}
		api.Put("endpointslices", kubetest.Slice(w.name, "vllm", int32(at.Port()), e))
	}
	put(w1, false)
	put(w2, false)
	a := startAgent(t, func(c *local.Config) {
		c.Discover = config.Discovery{Kubernetes: []config.KubernetesDiscovery{{Service: "vllm", Kubeconfig: api.Kubeconfig(), Scheme: "http", Weight: 1, GPU: "H100"}}}
	})
	testkit.Eventually(t, "two workers ready", func() bool { return countReady(a) == 2 })
	put(w1, true)
	testkit.Eventually(t, "the terminating worker drained", func() bool {
		for _, w := range a.Status().Workers {
			if w.Name == "pod-w1" && w.Source == "kubernetes" && w.State == "draining" && strings.Contains(w.Reason, "its pod is terminating") {
				return true
			}
		}
		return false
	})
	for range 3 {
		if resp, text := postChat(t, a, nonStreamingChat); resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, text)
		}
	}
	if w1.served.Load() != 0 || w2.served.Load() != 3 {
		t.Errorf("the draining worker served %d requests, the other %d", w1.served.Load(), w2.served.Load())
	}
	put(w1, false)
	testkit.Eventually(t, "the drain ended", func() bool { return countReady(a) == 2 })
	api.Delete("endpointslices", "w1")
	testkit.Eventually(t, "one worker left", func() bool { return len(a.Status().Workers) == 1 })
}
