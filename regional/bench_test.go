package regional_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkRequest measures a whole request over a kept connection: client, gateway, mutual TLS, a local instance
// that responds at once, and back.
func BenchmarkRequest(b *testing.B) {
	w := newWorld(b)
	g := w.startGateway("fra", nil)
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	go func() {
		for range l.bodies {
			<-l.requests
		}
	}()
	c := newClient(b)
	b.ReportAllocs()
	for b.Loop() {
		req, err := http.NewRequest("POST", "http://"+g.HTTPAddr().String()+"/v1/chat/completions", strings.NewReader(askBody))
		requireNoError(b, err)
		req.Header.Set("Authorization", "Bearer key-acme")
		resp, err := c.Do(req)
		requireNoError(b, err)
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
			b.Fatalf("%d (%v)", resp.StatusCode, err)
		}
		_ = resp.Body.Close()
	}
	b.StopTimer()
	l.server.Close()
	close(l.bodies)
}
