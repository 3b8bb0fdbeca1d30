package regional_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

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
