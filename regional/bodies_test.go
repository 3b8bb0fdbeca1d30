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
	"github.com/spillway-lb/spillway/internal/uplink"
	localtier "github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/regional"
)

// roomySpec lets bodies of 16 MiB in, and a model that takes them.
func roomySpec(d *uplink.Directive) {
	d.SpecVersion++
	d.Spec = []byte(strings.NewReplacer("max_body: 100000", "max_body: 16777216").Replace(worldSpec()))
}

// streaming is an inference server that serves the model large.
func streaming(t *testing.T, chat http.HandlerFunc) string {
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

// TestOpenStreamsHoldNoBodies: streams that cannot go on elsewhere hold nothing of their requests' bodies once they have begun,
// at the gateway and at the zone: 20 of 8 MiB each leave less than one of them in memory.
func TestOpenStreamsHoldNoBodies(t *testing.T) {
	const size, many = 8 << 20, 20
	w := newWorld(t)
	w.change(roomySpec)
	gateReg, zoneReg := prometheus.NewRegistry(), prometheus.NewRegistry()
	g := w.gateway("fra", func(c *regional.Config) { c.Registry = gateReg })
	proceed := make(chan struct{})
	let := sync.OnceFunc(func() { close(proceed) })
	worker := streaming(t, func(rw http.ResponseWriter, r *http.Request) {
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
		Certs: w.certs(localID("fra", "fra-a")), Workers: []config.WorkerEntry{{Name: "w1", URL: worker}},
	})
	must(t, err)
	must(t, a.Start(context.Background()))
	t.Cleanup(func() { _ = a.Stop(soon(t)) })
	w.served(g, "large")
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools have kept goes with the second
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var open []io.Closer
	body := `{"model":"large","stream":true,"max_tokens":16,"tools":[{"type":"function","function":{"name":"f"}}],"messages":[{"role":"user","content":"` + strings.Repeat("word ", size/5) + `"}]}`
	for range many {
		resp, err := w.do(context.Background(), g, call{key: "key-acme", body: body})
		must(t, err)
		open = append(open, resp.Body)
		if resp.StatusCode != 200 {
			b, _ := io.ReadAll(resp.Body)
			t.Fatalf("%d %.200s", resp.StatusCode, b)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := figure(t, gateReg, "spillway_regional_request_body_bytes", "") + figure(t, zoneReg, "spillway_local_request_body_bytes", ""); n != 0 {
		t.Errorf("%v bytes of bodies are counted as held", n)
	}
	held := func() int64 { return int64(heap()) - int64(before) - size } // body itself
	eventually(t, "the bodies are let go of", func() bool { return held() < size })
	t.Logf("%d open streams with bodies of %d MiB: %.1f MiB of heap", many, size>>20, float64(held())/(1<<20))
	let()
	for _, c := range open {
		_ = c.Close()
	}
}

// TestBodiesAreBoundedInBytes: a body for which there is no room is refused with 503 and Retry-After, before it is read where its
// length is declared; one tenant's leave room for others; and all is given back.
func TestBodiesAreBoundedInBytes(t *testing.T) {
	w := newWorld(t)
	w.change(roomySpec)
	reg := prometheus.NewRegistry()
	g := w.gateway("fra", func(c *regional.Config) { c.Registry, c.BodyMemory = reg, 40_000 })
	proceed := make(chan struct{})
	let := sync.OnceFunc(func() { close(proceed) })
	l := w.local(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Wait") != "" {
			<-proceed
		}
		reply(rw, r)
	}, small("small"))
	t.Cleanup(let)
	w.served(g, "small")
	long := strings.Replace(ask, "secret", strings.Repeat("x", 12_000), 1)
	answers := make(chan string, 3)
	hold := func(key string) {
		resp, body := w.ask(g, call{key: key, body: long, header: http.Header{"X-Wait": {"1"}}})
		answers <- fmt.Sprint(resp.StatusCode, " ", body)
	}
	go hold("key-acme")
	<-l.hits
	if n := figure(t, reg, "spillway_regional_request_body_bytes", ""); n != float64(len(long)) {
		t.Errorf("%v bytes are held of a body of %d", n, len(long))
	}
	refused := func(key string, declared bool) {
		t.Helper()
		var in io.Reader = strings.NewReader(long)
		if !declared {
			in = io.MultiReader(in)
		}
		req, err := http.NewRequest(http.MethodPost, "http://"+g.HTTPAddr().String()+"/v1/chat/completions", in)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := client(t).Do(req)
		must(t, err)
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(b), "memory") {
			t.Errorf("%s, declared %v: %d %v %s", key, declared, resp.StatusCode, resp.Header, b)
		}
	}
	refused("key-acme", true) // over its half
	refused("key-acme", false)
	if resp, body := w.ask(g, call{key: "key-acme", body: ask}); resp.StatusCode != 200 {
		t.Errorf("a short body: %d %s", resp.StatusCode, body)
	}
	go hold("key-europe") // another's
	go hold("key-urgent")
	eventually(t, "all three are held", func() bool {
		return figure(t, reg, "spillway_regional_request_body_bytes", "") == float64(3*len(long))
	})
	refused("key-narrow", true) // over the whole
	refused("key-narrow", false)
	if n := figure(t, reg, "spillway_regional_request_body_refusals_total", ""); n != 4 {
		t.Errorf("%v refusals are counted, want 4", n)
	}
	let()
	for range 3 {
		if got := <-answers; !strings.HasPrefix(got, "200") {
			t.Error(got)
		}
	}
	eventually(t, "all is given back", func() bool { return figure(t, reg, "spillway_regional_request_body_bytes", "") == 0 })
}
