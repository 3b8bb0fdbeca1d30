package local_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
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
