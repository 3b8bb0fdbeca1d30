package regional_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkRequest is one whole request over a kept connection: client, gateway, mutual TLS, a local that answers at
// once, and back.
func BenchmarkRequest(b *testing.B) {
	w := newWorld(b)
	g := w.gateway("fra", nil)
	l := w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")
	go func() {
		for range l.bodies {
			<-l.hits
		}
	}()
	c := client(b)
	b.ReportAllocs()
	for b.Loop() {
		req, err := http.NewRequest("POST", "http://"+g.HTTPAddr().String()+"/v1/chat/completions", strings.NewReader(ask))
		must(b, err)
		req.Header.Set("Authorization", "Bearer key-acme")
		resp, err := c.Do(req)
		must(b, err)
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
			b.Fatalf("%d (%v)", resp.StatusCode, err)
		}
		_ = resp.Body.Close()
	}
	b.StopTimer()
	l.server.Close()
	close(l.bodies)
}
