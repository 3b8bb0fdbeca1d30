package local_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local"
)

// An instance that stops lets streams finish. What still runs when the time is over ends with an event that says so, and
// not in the middle of one; meanwhile it says that it drains.
func TestStopEndsStreamsWithAnEvent(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	a := startAgent(t, func(c *local.Config) { c.MetricsListen = "127.0.0.1:0" }, w)
	begin := func() *bufio.Reader {
		t.Helper()
		resp, err := testClient.Post("http://"+a.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(streamedChat))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		r := bufio.NewReader(resp.Body)
		if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "w0") {
			t.Fatalf("%q, %v", line, err)
		}
		return r
	}
	w.setMode("endless")
	stuck := begin()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- a.Stop(ctx) }()
	testkit.Eventually(t, "it says that it drains", func() bool { return a.Summary(time.Now()).Draining })
	text, err := io.ReadAll(stuck)
	if err != nil || !strings.HasSuffix(string(text), "\"upstream_lost\"}}\n\n") {
		t.Errorf("the stream ended with %q, %v", text, err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stopping: %v", err)
	}
}

// A stop waits for streams that finish in time.
func TestStopLetsStreamsFinish(t *testing.T) {
	a, _, _ := startResumableZone(t, nil)
	url := "http://" + a.Addr().String()
	got := make(chan streamAnswer, 1)
	begun := make(chan struct{})
	go func() {
		resp, err := testClient.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(fmt.Sprintf(
			`{"model":%q,"messages":[{"role":"user","content":"x"}],"max_tokens":300,"ignore_eos":true,"stream":true}`, baseModel)))
		close(begun)
		if err != nil || resp.StatusCode != http.StatusOK {
			got <- streamAnswer{failure: fmt.Sprint(resp, err)}
			return
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		got <- streamAnswer{text: string(text)}
	}()
	<-begun
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := a.Stop(ctx); err != nil {
		t.Error(err)
	}
	if g := <-got; g.failure != "" || !strings.HasSuffix(g.text, "data: [DONE]\n\n") {
		t.Errorf("the stream ended with %q %s", g.text[max(0, len(g.text)-200):], g.failure)
	}
}

// TestZoneDrainDeadlineEndsOpenAnswers: at the deadline of a zone's drain, streams end with an error event, requests
// without a byte are handed back to the gateway, and new ones are refused. Before that, and after the drain,
// everything is served.
func TestZoneDrainDeadlineEndsOpenAnswers(t *testing.T) {
	p := newGatewayHarness(t)
	w1 := newFakeVLLM(t, "w1")
	a := startAgent(t, p.joinGateway, w1)
	text := strings.Replace(specText, "policy: least_connections", "policy: least_connections, health: {drain_deadline: 2s}", 1)
	p.directive.Store(&uplink.Directive{Index: 5, SpecVersion: 1, Spec: []byte(text)})
	p.parent.PushDirectives()
	hop := forward.Hop{RequestID: "r1", Tenant: "acme", RetriesLeft: 1}
	testkit.Eventually(t, "the spec in force", func() bool { return a.Status().Models != nil && p.latestSummary.Load() != nil })

	type answer struct {
		resp *http.Response
		text string
		at   time.Time
	}
	var begun atomic.Int64
	send := func(body string) chan answer {
		c := make(chan answer, 1)
		go func() {
			resp, text, err := p.postFromGatewayWatched(p.gateway, a, hop, body, func() { begun.Add(1) })
			if err != nil {
				t.Error(err)
			}
			c <- answer{resp, text, time.Now()}
		}()
		return c
	}
	w1.setMode("endless")
	streaming := send(streamedChat)
	testkit.Eventually(t, "a stream under way", func() bool { return begun.Load() == 1 })
	w1.setMode("stall")
	silent := send(streamedChat)
	testkit.Eventually(t, "a request without a byte", func() bool { return w1.running.Load() == 2 })

	drained := time.Now()
	p.directive.Store(&uplink.Directive{Index: 6, SpecVersion: 1, Spec: []byte(text), Drains: []uplink.ActiveDrain{{Path: "us/us-a"}}})
	p.parent.PushDirectives()
	testkit.Eventually(t, "the zone draining", func() bool { return p.latestSummary.Load().Draining })
	w1.setMode("ok")
	if got := <-send(streamedChat); time.Since(drained) < 2*time.Second && got.resp.StatusCode != http.StatusOK {
		t.Errorf("before the deadline: %d %q", got.resp.StatusCode, got.text)
	}

	if got := <-streaming; !strings.Contains(got.text, `"upstream_lost"`) || got.at.Sub(drained) < 1900*time.Millisecond {
		t.Errorf("the stream ended after %v with %q", got.at.Sub(drained), got.text)
	}
	if got := <-silent; got.resp.Header.Get(forward.HeaderNotStarted) == "" {
		t.Errorf("the request without a byte got %d %v %q", got.resp.StatusCode, got.resp.Header, got.text)
	}
	if got := <-send(streamedChat); got.resp.StatusCode != http.StatusServiceUnavailable || got.resp.Header.Get(forward.HeaderNotStarted) == "" {
		t.Errorf("after the deadline: %d %v %q", got.resp.StatusCode, got.resp.Header, got.text)
	}
	p.directive.Store(&uplink.Directive{Index: 7, SpecVersion: 1, Spec: []byte(text)})
	p.parent.PushDirectives()
	testkit.Eventually(t, "the zone serving again", func() bool { return (<-send(streamedChat)).resp.StatusCode == http.StatusOK })
}
