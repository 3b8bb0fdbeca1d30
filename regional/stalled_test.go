package regional_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
)

// stalledRequest is a request whose body stops before its end.
type stalledRequest struct {
	name, path string
	header     map[string]string
	body       string // the expected result
	grpc       bool
}

// listStalledRequests lists requests for every way in which a body is read.
func listStalledRequests() []stalledRequest {
	named := map[string]string{"X-Model": "small", "Content-Type": "application/octet-stream"}
	call := map[string]string{"Content-Type": "application/grpc", "Te": "trailers"}
	namedCall := map[string]string{"Content-Type": "application/grpc", "Te": "trailers", "X-Model": "small"}
	return []stalledRequest{
		{name: "chat", path: "/v1/chat/completions", header: map[string]string{"Content-Type": "application/json"}, body: askBody[:40]},
		{name: "passed", path: "/v1/audio/transcriptions", header: named, body: "abc"},
		{name: "call", path: inferMethod, header: call, grpc: true},
		{name: "call in part", path: inferMethod, header: call, body: "\x00\x00\x00\x0b\xb8\x0a", grpc: true},
		{name: "named call", path: inferMethod, header: namedCall, grpc: true},
	}
}

// TestStalledBodiesReleaseEverything: with any listener and protocol, a body that stops is answered at the
// caller's deadline or the body timeout, whichever is first. After that nothing is left: no request in flight at
// the gateway or the worker, and over HTTP/1.1 no connection.
func TestStalledBodiesReleaseEverything(t *testing.T) {
	for _, bound := range []struct {
		name     string
		noFast   bool
		timeout  time.Duration
		deadline string
		statuses []int
		calls    string // grpc-status
	}{
		{"caller's deadline", false, 20 * time.Second, "300", []int{504}, "4"},
		{"body timeout", false, 300 * time.Millisecond, "", []int{408}, ""},
		{"timeout over net/http", true, 300 * time.Millisecond, "", []int{408}, ""},
		{"deadline over net/http", true, time.Second, "300", []int{504}, "4"},
	} {
		t.Run(bound.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			worker := newGRPCWorker(t)
			files := w.issuePublicCert("front")
			clear, secure := prometheus.NewRegistry(), prometheus.NewRegistry()
			g := w.startGateway("fra", func(c *regional.Config) { c.Registry, c.BodyTimeout, c.NoFast = clear, bound.timeout, bound.noFast })
			w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: startSimWorker(t), GRPC: "http://" + worker.addr})
			w.waitUntilServed(g, "small")
			s := w.startGateway("fra", func(c *regional.Config) {
				c.NoFast = bound.noFast
				c.Registry, c.BodyTimeout, c.HTTPCert, c.HTTPKey = secure, bound.timeout, files.Cert, files.Key
			})
			w.startLocalAt(s.UplinkAddr().String(), "fra", "fra-b", replyCompletion, roomyModel("small"))
			testkit.Eventually(t, "small is served over TLS", func() bool { return isServedOverTLS(t, s.HTTPAddr().String()) })

			check := func(door string, r stalledRequest, status int, grpcStatus string, took time.Duration, err error) {
				t.Helper()
				switch {
				case err != nil:
					t.Errorf("%s, %s: no answer in %v: %v", door, r.name, took, err)
				case r.grpc && (status != 200 || grpcStatus == "" || grpcStatus == "0" || bound.calls != "" && grpcStatus != bound.calls):
					t.Errorf("%s, %s: status %d, grpc-status %q", door, r.name, status, grpcStatus)
				case !r.grpc && status != bound.statuses[0]:
					t.Errorf("%s, %s: status %d, want %d", door, r.name, status, bound.statuses[0])
				case took > 10*time.Second:
					t.Errorf("%s, %s: answered after %v", door, r.name, took)
				}
			}
			var all sync.WaitGroup
			for _, r := range listStalledRequests() {
				head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: chat.api.example\r\nAuthorization: Bearer key-acme\r\n", r.path)
				for k, v := range r.header {
					head += k + ": " + v + "\r\n"
				}
				if bound.deadline != "" {
					head += "X-Spillway-Deadline-Ms: " + bound.deadline + "\r\n"
				}
				for framing, text := range map[string]string{
					"length": head + "Content-Length: 4000\r\n\r\n" + r.body,
					"chunks": head + "Transfer-Encoding: chunked\r\n\r\n" + encodeChunk(r.body),
				} {
					for door, dial := range map[string]func() (net.Conn, error){
						"clear": func() (net.Conn, error) { return net.Dial("tcp", g.HTTPAddr().String()) },
						"TLS": func() (net.Conn, error) {
							return tls.Dial("tcp", s.HTTPAddr().String(), &tls.Config{InsecureSkipVerify: true})
						},
					} {
						all.Go(func() {
							began := time.Now()
							status, grpcStatus, err := sendRaw(dial, text)
							check(door+" "+framing, r, status, grpcStatus, time.Since(began), err)
						})
					}
				}
				for door, do := range map[string]func(*http.Request) (*http.Response, error){
					"h2c": newH2Client(t, false).Do, "h2": newH2Client(t, true).Do, "h3": newH3Client(t).Do,
				} {
					base := "https://" + s.HTTPAddr().String()
					if door == "h2c" {
						base = "http://" + g.HTTPAddr().String()
					}
					all.Go(func() {
						in, out := io.Pipe()
						defer out.Close()
						go func() { _, _ = io.WriteString(out, r.body) }()
						req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+r.path, in)
						requireNoError(t, err)
						for k, v := range r.header {
							req.Header.Set(k, v)
						}
						req.Header.Set("Authorization", "Bearer key-acme")
						if bound.deadline != "" {
							req.Header.Set("X-Spillway-Deadline-Ms", bound.deadline)
						}
						began := time.Now()
						resp, err := do(req)
						if err != nil {
							check(door, r, 0, "", time.Since(began), err)
							return
						}
						defer func() { _ = resp.Body.Close() }()
						check(door, r, resp.StatusCode, resp.Header.Get("Grpc-Status"), time.Since(began), nil)
					})
				}
			}
			all.Wait()
			testkit.Eventually(t, "nothing under way", func() bool { return readInFlight(t, clear) == 0 && readInFlight(t, secure) == 0 })
			testkit.Eventually(t, "nothing at the worker", func() bool { return worker.openCalls.Load() == 0 })
		})
	}
}

// encodeChunk encodes a body's first bytes as a chunk, "" for none.
func encodeChunk(s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf("%x\r\n%s\r\n", len(s), s)
}

// sendRaw sends the available part of a request and reads its response and the end of the connection, which stays
// open on this side.
func sendRaw(dial func() (net.Conn, error), text string) (status int, grpcStatus string, err error) {
	c, err := dial()
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = c.Close() }()
	if _, err = io.WriteString(c, text); err != nil {
		return 0, "", err
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err = io.Copy(io.Discard, in); errors.Is(err, os.ErrDeadlineExceeded) {
		return resp.StatusCode, "", fmt.Errorf("status %d, and the connection stays: %w", resp.StatusCode, err)
	}
	return resp.StatusCode, resp.Header.Get("Grpc-Status"), nil
}

// newH2Client returns a client that supports only HTTP/2.
func newH2Client(t *testing.T, secure bool) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: &http.Protocols{}}
	tr.Protocols.SetHTTP2(secure)
	tr.Protocols.SetUnencryptedHTTP2(!secure)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// isServedOverTLS reports whether a TLS listener lists the model small.
func isServedOverTLS(t *testing.T, addr string) bool {
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	requireNoError(t, err)
	statuses, _, _, _ := exchangeBytes(t, c, 1, true, "GET /v1/models/small HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer key-acme\r\n\r\n")
	return len(statuses) == 1 && statuses[0] == 200
}

// TestUnfinishedBodiesCountAgainstConcurrencyLimit: requests whose bodies have not arrived yet count against the
// tenant's concurrency limit. Those beyond it are refused at once and hold nothing.
func TestUnfinishedBodiesCountAgainstConcurrencyLimit(t *testing.T) {
	w := newWorld(t)
	w.changeDirective(func(d *uplink.Directive) {
		d.Spec = []byte(strings.Replace(worldSpec(), "limits: {requests_per_minute: 1, tokens_per_minute: 100000}", "limits: {concurrency: 1}", 1))
	})
	reg := prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.Registry, c.BodyTimeout = reg, 20*time.Second })
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	limited := func(r stalledRequest) string {
		head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: chat.api.example\r\nAuthorization: Bearer key-limited\r\nContent-Length: 4000\r\n", r.path)
		for k, v := range r.header {
			head += k + ": " + v + "\r\n"
		}
		return head + "\r\n" + r.body
	}
	for _, r := range listStalledRequests() {
		if r.name == "named call" {
			continue // forwarded to a zone, which waits for its message
		}
		first, err := net.Dial("tcp", g.HTTPAddr().String())
		requireNoError(t, err)
		_, err = io.WriteString(first, limited(r))
		requireNoError(t, err)
		testkit.Eventually(t, "the first is under way", func() bool { return readInFlight(t, reg) == 1 })
		testkit.Eventually(t, r.name+": the second is refused", func() bool {
			resp, body := w.getAnswer(g, clientCall{key: "key-limited", body: askBody})
			return resp.StatusCode == 429 && errorCode(body) == "concurrency"
		})
		for _, second := range listStalledRequests() {
			c, err := net.Dial("tcp", g.HTTPAddr().String())
			requireNoError(t, err)
			_, err = io.WriteString(c, limited(second))
			requireNoError(t, err)
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || !second.grpc && resp.StatusCode != 429 || second.grpc && resp.Header.Get("Grpc-Status") != "8" {
				t.Errorf("%s beside %s: %v %v", second.name, r.name, resp, err)
			}
			_ = c.Close()
		}
		if n := readInFlight(t, reg); n != 1 {
			t.Errorf("%s: %v requests are under way, want the first alone", r.name, n)
		}
		_ = first.Close()
		testkit.Eventually(t, "the first is over", func() bool { return readInFlight(t, reg) == 0 })
	}
	if resp, body := w.getAnswer(g, clientCall{key: "key-limited", body: askBody}); resp.StatusCode != 200 {
		t.Errorf("the places of requests that came to nothing are not given back: %d %s", resp.StatusCode, body)
	}
}
