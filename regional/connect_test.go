package regional_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/regional"
)

// TestWebSocketsOverHTTP2And3AreRefusedClearly: the HTTP/3 library offers WebSockets to clients, and HTTP/2
// clients may request them without an offer.
func TestWebSocketsOverHTTP2And3AreRefusedClearly(t *testing.T) {
	w := newWorld(t)
	files := w.issuePublicCert("front")
	g := w.startGateway("fra", func(c *regional.Config) { c.HTTPCert, c.HTTPKey = files.Cert, files.Key })
	w.waitUntilReady(g)
	two := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	defer two.CloseIdleConnections()
	for name, c := range map[string]struct {
		client *http.Client
		proto  string // :protocol; empty for a plain CONNECT
		major  int
	}{
		"HTTP/2": {two, "", 2},
		"HTTP/3": {newH3Client(t), "websocket", 3},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodConnect, "https://"+g.HTTPAddr().String()+"/v1/realtime?model=small", nil)
		requireNoError(t, err)
		if r.Header.Set("Authorization", "Bearer key-acme"); c.proto != "" {
			r.Proto = c.proto
		}
		resp, err := c.client.Do(r)
		requireNoError(t, err)
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		_ = resp.Body.Close()
		if resp.ProtoMajor != c.major || resp.StatusCode != http.StatusNotImplemented || errorCode(string(text)) != openai.CodeMethodNotAllowed || !strings.Contains(string(text), "over HTTP/1.1") {
			t.Errorf("over %s: %s %d %s", name, resp.Proto, resp.StatusCode, text)
		}
	}
}
