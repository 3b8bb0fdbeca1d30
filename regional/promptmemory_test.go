package regional_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	localtier "github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/regional"
)

// A prompt of 220 KB is in memory once while it is forwarded, not twice.
func TestLongPromptIsInMemoryOnce(t *testing.T) { checkPromptMemory(t, "large") }

// The same holds when the model's name is rewritten.
func TestLongPromptToAliasIsInMemoryOnce(t *testing.T) { checkPromptMemory(t, "roomiest") }

func checkPromptMemory(t *testing.T, asked string) {
	const size, many = 220_000, 40
	w := newWorld(t)
	w.changeDirective(func(d *uplink.Directive) {
		d.Spec = []byte(strings.NewReplacer("max_body: 100000", "max_body: 1000000",
			"aliases:\n", "aliases:\n  - name: roomiest\n    targets: [{model: large, weight: 1}]\n").Replace(worldSpec()))
	})
	g := w.startGateway("fra", nil)
	proceed := make(chan struct{})
	let := sync.OnceFunc(func() { close(proceed) })
	roomy := roomyModel("large")
	roomy.MaxContext, roomy.KVTotal, roomy.KVFree, roomy.Hardware[0].PrefillRate = 1<<20, 1<<30, 1<<30, 1e9
	l := w.startLocal(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) { <-proceed; replyCompletion(rw, r) }, roomy)
	t.Cleanup(let) // before the simulated zone closes, which waits for its handlers
	w.waitUntilServed(g, "large")
	body := `{"model":"` + asked + `","max_tokens":16,"messages":[{"role":"user","content":"` + strings.Repeat("word ", size/5) + `"}]}`
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // the second collection frees what sync.Pool has kept
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	answers := make(chan error, many)
	for range many {
		go func() { answers <- w.checkAnswer(g, clientCall{key: "key-acme", body: body}) }()
	}
	for range many { // all are in flight
		select {
		case b := <-l.bodies: // the simulated zone has each too, until its handler returns
			if want := strings.Replace(body, asked, "large", 1); string(b) != want {
				t.Fatalf("of %d bytes came %d, beginning with %q", len(want), len(b), b[:40])
			}
		case err := <-answers:
			t.Fatalf("an answer before the stand-in gave one: %v", err)
		}
	}
	each := float64(heap()-before) / many
	let()
	for range many {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	// The gateway's copy, that of the simulated zone (grown by doubling), and buffers are 2.4 to 2.6 prompts. A
	// second copy in the gateway would make it 3.4.
	t.Logf("%.0f KB for each prompt of %d KB, that of the stand-in below included", each/1000, size/1000)
	if each > 3.2*size {
		t.Errorf("%.0f KB are held for each prompt of %d KB, that of the stand-in below included", each/1000, size/1000)
	}
}

// checkAnswer sends a request, on any goroutine, and returns an error if the response is wrong.
func (w *testWorld) checkAnswer(g *regional.Gateway, c clientCall) error {
	resp, err := w.sendCall(context.Background(), g, c)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %s", resp.StatusCode, text)
	}
	return err
}

// setLargeBodySpec allows bodies of 16 MiB and adds a model that accepts them.
func setLargeBodySpec(d *uplink.Directive) {
	d.SpecVersion++
	d.Spec = []byte(strings.NewReplacer("max_body: 100000", "max_body: 16777216").Replace(worldSpec()))
}

// startStreamingWorker starts an inference server that serves the model "large".
func startStreamingWorker(t *testing.T, chat http.HandlerFunc) string {
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			_, _ = io.WriteString(rw, `{"data":[{"id":"large","max_model_len":16777216}]}`)
		case "/v1/chat/completions":
			chat(rw, r)
		default:
			http.NotFound(rw, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestOpenStreamsHoldNoBodies: streams that cannot be continued elsewhere keep nothing of their request bodies
// once they have started, at the gateway and in the zone. 20 bodies of 8 MiB leave less than one of them in
// memory.
func TestOpenStreamsHoldNoBodies(t *testing.T) {
	const size, many = 8 << 20, 20
	w := newWorld(t)
	w.changeDirective(setLargeBodySpec)
	gateReg, zoneReg := prometheus.NewRegistry(), prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.Registry = gateReg })
	proceed := make(chan struct{})
	let := sync.OnceFunc(func() { close(proceed) })
	worker := startStreamingWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")
		_ = http.NewResponseController(rw).Flush()
		<-proceed
		_, _ = io.WriteString(rw, "data: [DONE]\n\n")
	})
	t.Cleanup(let)
	a, err := localtier.New(localtier.Config{
		Name: "l1", Region: "fra", Zone: "fra-a", Listen: "127.0.0.1:0", Gateways: []string{g.UplinkAddr().String()}, Registry: zoneReg,
		Certs: w.issueCerts(localID("fra", "fra-a")), Workers: []config.WorkerEntry{{Name: "w1", URL: worker}},
	})
	requireNoError(t, err)
	requireNoError(t, a.Start(context.Background()))
	t.Cleanup(func() { _ = a.Stop(stopContext(t)) })
	w.waitUntilServed(g, "large")
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // the second collection frees what sync.Pool has kept
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var open []io.Closer
	body := `{"model":"large","stream":true,"max_tokens":16,"tools":[{"type":"function","function":{"name":"f"}}],"messages":[{"role":"user","content":"` + strings.Repeat("word ", size/5) + `"}]}`
	for range many {
		resp, err := w.sendCall(context.Background(), g, clientCall{key: "key-acme", body: body})
		requireNoError(t, err)
		open = append(open, resp.Body)
		if resp.StatusCode != 200 {
			b, _ := io.ReadAll(resp.Body)
			t.Fatalf("%d %.200s", resp.StatusCode, b)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := readMetric(t, gateReg, "spillway_regional_request_body_bytes", "") + readMetric(t, zoneReg, "spillway_local_request_body_bytes", ""); n != 0 {
		t.Errorf("%v bytes of bodies are counted as held", n)
	}
	held := func() int64 { return int64(heap()) - int64(before) - size } // body itself
	testkit.Eventually(t, "the bodies are let go of", func() bool { return held() < size })
	t.Logf("%d open streams with bodies of %d MiB: %.1f MiB of heap", many, size>>20, float64(held())/(1<<20))
	let()
	for _, c := range open {
		_ = c.Close()
	}
}

// TestResumableStreamHoldsItsBody: the body of a stream that another zone can continue stays in memory until the
// stream ends. Any other body is released at the first byte.
func TestResumableStreamHoldsItsBody(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.Registry = reg })
	proceed := make(chan struct{})
	let := sync.OnceFunc(func() { close(proceed) })
	w.startLocal(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")
		_ = http.NewResponseController(rw).Flush()
		<-proceed
		_, _ = io.WriteString(rw, "data: [DONE]\n\n")
	}, roomyModel("small"))
	t.Cleanup(let)
	w.waitUntilServed(g, "small")
	held := func() float64 { return readMetric(t, reg, "spillway_regional_request_body_bytes", "") }
	streamed := strings.Replace(askBody, `{"model"`, `{"stream":true,"model"`, 1)
	final := strings.Replace(streamed, `{"stream"`, `{"stop":["."],"stream"`, 1)
	for _, c := range []struct {
		body string
		held int
	}{{final, 0}, {streamed, len(streamed)}} {
		resp, err := w.sendCall(context.Background(), g, clientCall{key: "key-acme", body: c.body})
		requireNoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%d, %v", resp.StatusCode, err)
		}
		if n := held(); n != float64(c.held) {
			t.Errorf("%v bytes are held, want %d", n, c.held)
		}
	}
	let()
	testkit.Eventually(t, "nothing is held", func() bool { return held() == 0 })
}

// TestBodiesAreBoundedInBytes: a body that exceeds the free body memory is refused with 503 and Retry-After,
// before it is read if its length is declared. One tenant's bodies leave room for others. All memory is returned
// at the end.
func TestBodiesAreBoundedInBytes(t *testing.T) {
	w := newWorld(t)
	w.changeDirective(setLargeBodySpec)
	reg := prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.Registry, c.BodyMemory = reg, 40_000 })
	proceed := make(chan struct{})
	let := sync.OnceFunc(func() { close(proceed) })
	l := w.startLocal(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Wait") != "" {
			<-proceed
		}
		replyCompletion(rw, r)
	}, roomyModel("small"))
	t.Cleanup(let)
	w.waitUntilServed(g, "small")
	long := strings.Replace(askBody, "secret", strings.Repeat("x", 12_000), 1)
	answers := make(chan string, 3)
	hold := func(key string) {
		resp, body := w.getAnswer(g, clientCall{key: key, body: long, header: http.Header{"X-Wait": {"1"}}})
		answers <- fmt.Sprint(resp.StatusCode, " ", body)
	}
	go hold("key-acme")
	<-l.requests
	if n := readMetric(t, reg, "spillway_regional_request_body_bytes", ""); n != float64(len(long)) {
		t.Errorf("%v bytes are held of a body of %d", n, len(long))
	}
	refused := func(key string, declared bool) {
		t.Helper()
		var in io.Reader = strings.NewReader(long)
		if !declared {
			in = io.MultiReader(in)
		}
		req, err := http.NewRequest(http.MethodPost, "http://"+g.HTTPAddr().String()+"/v1/chat/completions", in)
		requireNoError(t, err)
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := newClient(t).Do(req)
		requireNoError(t, err)
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(b), "memory") {
			t.Errorf("%s, declared %v: %d %v %s", key, declared, resp.StatusCode, resp.Header, b)
		}
	}
	refused("key-acme", true) // above half of the memory
	refused("key-acme", false)
	if resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: askBody}); resp.StatusCode != 200 {
		t.Errorf("a short body: %d %s", resp.StatusCode, body)
	}
	go hold("key-europe") // another tenant's
	go hold("key-urgent")
	testkit.Eventually(t, "all three are held", func() bool {
		return readMetric(t, reg, "spillway_regional_request_body_bytes", "") == float64(3*len(long))
	})
	refused("key-narrow", true) // above the whole memory
	refused("key-narrow", false)
	if n := readMetric(t, reg, "spillway_regional_request_body_refusals_total", ""); n != 4 {
		t.Errorf("%v refusals are counted, want 4", n)
	}
	let()
	for range 3 {
		if got := <-answers; !strings.HasPrefix(got, "200") {
			t.Error(got)
		}
	}
	testkit.Eventually(t, "all is given back", func() bool { return readMetric(t, reg, "spillway_regional_request_body_bytes", "") == 0 })
}
