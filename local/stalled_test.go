package local_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
)

// TestStalledRequestBodiesAreTimedOut: a body that stops is answered at the caller's own deadline or at the body timeout, whichever is
// first, by a zone that stands alone too, and the connection ends.
func TestStalledRequestBodiesAreTimedOut(t *testing.T) {
	for _, bound := range []struct {
		name, deadline string
		timeout        time.Duration
		status         int
	}{
		{"caller's deadline", "X-Spillway-Deadline-Ms: 300\r\n", 20 * time.Second, 504},
		{"body timeout", "", 300 * time.Millisecond, 408},
	} {
		t.Run(bound.name, func(t *testing.T) {
			t.Parallel()
			a := startAgentWith(t, func(c *local.Config) { c.BodyTimeout = bound.timeout }, newChatWorker(t, "w1", func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
			}))
			var all sync.WaitGroup
			for _, r := range []struct{ path, header, body string }{
				{"/v1/chat/completions", "", `{"model":"m`},
				{"/v1/embeddings", "", `{"model":"m`},
				{"/v2/models/m/infer", "", `{"inputs":`},
				{"/v1/audio/transcriptions", "X-Model: m\r\n", "abc"},
				{"/inference.GRPCInferenceService/ModelInfer", "Content-Type: application/grpc\r\n", "\x00"},
			} {
				head := "POST " + r.path + " HTTP/1.1\r\nHost: x\r\n" + r.header + bound.deadline
				for framing, text := range map[string]string{
					"length": head + "Content-Length: 4000\r\n\r\n" + r.body,
					"chunks": head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(r.body), r.body),
				} {
					all.Go(func() {
						c, err := net.Dial("tcp", a.Addr().String())
						if err != nil {
							t.Error(err)
							return
						}
						defer func() { _ = c.Close() }()
						_, _ = io.WriteString(c, text)
						_ = c.SetReadDeadline(time.Now().Add(time.Minute))
						in := bufio.NewReader(c)
						resp, err := http.ReadResponse(in, nil)
						if err != nil {
							t.Errorf("%s, %s: %v", r.path, framing, err)
							return
						}
						defer func() { _ = resp.Body.Close() }()
						if resp.StatusCode != bound.status {
							t.Errorf("%s, %s: status %d, want %d", r.path, framing, resp.StatusCode, bound.status)
						}
						if _, err := io.Copy(io.Discard, in); err != nil && isTimeout(err) {
							t.Errorf("%s, %s: the connection stays", r.path, framing)
						}
					})
				}
			}
			all.Go(func() { // a call over HTTP/2 that never sends its message
				in, out := io.Pipe()
				defer out.Close()
				tr := &http.Transport{Protocols: &http.Protocols{}}
				tr.Protocols.SetUnencryptedHTTP2(true)
				defer tr.CloseIdleConnections()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.Addr().String()+"/inference.GRPCInferenceService/ModelInfer", in)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/grpc")
				if bound.deadline != "" {
					req.Header.Set("Grpc-Timeout", "300m")
				}
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Errorf("a call that sends nothing: %v", err)
					return
				}
				defer func() { _ = resp.Body.Close() }()
				if s := resp.Header.Get("Grpc-Status"); s == "" || s == "0" || bound.deadline != "" && s != "4" {
					t.Errorf("a call that sends nothing ends with %q", s)
				}
			})
			all.Wait()
			testkit.Eventually(t, "the ledger empty", func() bool { return isIdle(a) })
		})
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}
