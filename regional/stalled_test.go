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
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
)

// stalled is a request whose body stops.
type stalled struct {
	name, path string
	header     map[string]string
	body       string // what comes of it
	grpc       bool
}

// stalledRequests are of every way in which a body is read.
func stalledRequests() []stalled {
	named := map[string]string{"X-Model": "small", "Content-Type": "application/octet-stream"}
	call := map[string]string{"Content-Type": "application/grpc", "Te": "trailers"}
	namedCall := map[string]string{"Content-Type": "application/grpc", "Te": "trailers", "X-Model": "small"}
	return []stalled{
		{name: "chat", path: "/v1/chat/completions", header: map[string]string{"Content-Type": "application/json"}, body: ask[:40]},
		{name: "passed", path: "/v1/audio/transcriptions", header: named, body: "abc"},
		{name: "call", path: inferMethod, header: call, grpc: true},
		{name: "call in part", path: inferMethod, header: call, body: "\x00\x00\x00\x0b\xb8\x0a", grpc: true},
		{name: "named call", path: inferMethod, header: namedCall, grpc: true},
	}
}

// TestBodiesThatStopHoldNothing: whatever the listener and the protocol, a body that stops is answered at the caller's own
// deadline or at the body timeout, whichever is first, and then nothing of it is left: no request under way at the gateway or
// at the worker, and over HTTP/1.1 no connection.
func TestBodiesThatStopHoldNothing(t *testing.T) {
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
			worker := newCallee(t)
			files := w.frontFiles("front")
			clear, secure := prometheus.NewRegistry(), prometheus.NewRegistry()
			g := w.gateway("fra", func(c *regional.Config) { c.Registry, c.BodyTimeout, c.NoFast = clear, bound.timeout, bound.noFast })
			w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: standIn(t), GRPC: "http://" + worker.addr})
			w.served(g, "small")
			s := w.gateway("fra", func(c *regional.Config) {
				c.NoFast = bound.noFast
				c.Registry, c.BodyTimeout, c.HTTPCert, c.HTTPKey = secure, bound.timeout, files.Cert, files.Key
			})
			w.localBehind(s.UplinkAddr().String(), "fra", "fra-b", reply, small("small"))
			eventually(t, "small is served over TLS", func() bool { return servedOver(t, s.HTTPAddr().String()) })

			check := func(door string, r stalled, status int, grpcStatus string, took time.Duration, err error) {
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
			for _, r := range stalledRequests() {
				head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: chat.api.example\r\nAuthorization: Bearer key-acme\r\n", r.path)
				for k, v := range r.header {
					head += k + ": " + v + "\r\n"
				}
				if bound.deadline != "" {
					head += "X-Spillway-Deadline-Ms: " + bound.deadline + "\r\n"
				}
				for framing, text := range map[string]string{
					"length": head + "Content-Length: 4000\r\n\r\n" + r.body,
					"chunks": head + "Transfer-Encoding: chunked\r\n\r\n" + chunkOf(r.body),
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
					"h2c": overH2(t, false).Do, "h2": overH2(t, true).Do, "h3": h3Client(t).Do,
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
						must(t, err)
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
			eventually(t, "nothing under way", func() bool { return inFlight(t, clear) == 0 && inFlight(t, secure) == 0 })
			eventually(t, "nothing at the worker", func() bool { return worker.open.Load() == 0 })
		})
	}
}

// chunkOf is a body's first bytes as a chunk, nothing for none.
func chunkOf(s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf("%x\r\n%s\r\n", len(s), s)
}

// sendRaw sends what there is of a request and reads its answer and the end of the connection, which stays open on this side.
func sendRaw(dial func() (net.Conn, error), text string) (status int, grpcStatus string, err error) {
	c, err := dial()
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = c.Close() }()
	if _, err = io.WriteString(c, text); err != nil {
		return 0, "", err
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
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

// overH2 is a client that speaks HTTP/2 alone.
func overH2(t *testing.T, secure bool) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: &http.Protocols{}}
	tr.Protocols.SetHTTP2(secure)
	tr.Protocols.SetUnencryptedHTTP2(!secure)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// servedOver reports whether a TLS listener lists the model small.
func servedOver(t *testing.T, addr string) bool {
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	must(t, err)
	statuses, _, _, _ := converse(t, c, 1, true, "GET /v1/models/small HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer key-acme\r\n\r\n")
	return len(statuses) == 1 && statuses[0] == 200
}

// TestSlowBodiesCountAgainstTheTenant: requests whose bodies have not come yet are under way as far as the tenant's limit of
// requests at a time is concerned, and those beyond it are refused at once and hold nothing.
func TestSlowBodiesCountAgainstTheTenant(t *testing.T) {
	w := newWorld(t)
	w.change(func(d *uplink.Directive) {
		d.Spec = []byte(strings.Replace(worldSpec(), "limits: {requests_per_minute: 1, tokens_per_minute: 100000}", "limits: {concurrency: 1}", 1))
	})
	reg := prometheus.NewRegistry()
	g := w.gateway("fra", func(c *regional.Config) { c.Registry, c.BodyTimeout = reg, 20*time.Second })
	w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")
	limited := func(r stalled) string {
		head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: chat.api.example\r\nAuthorization: Bearer key-limited\r\nContent-Length: 4000\r\n", r.path)
		for k, v := range r.header {
			head += k + ": " + v + "\r\n"
		}
		return head + "\r\n" + r.body
	}
	for _, r := range stalledRequests() {
		if r.name == "named call" {
			continue // it goes on to a zone, where its message is waited for
		}
		first, err := net.Dial("tcp", g.HTTPAddr().String())
		must(t, err)
		_, err = io.WriteString(first, limited(r))
		must(t, err)
		eventually(t, "the first is under way", func() bool { return inFlight(t, reg) == 1 })
		eventually(t, r.name+": the second is refused", func() bool {
			resp, body := w.ask(g, call{key: "key-limited", body: ask})
			return resp.StatusCode == 429 && code(body) == "concurrency"
		})
		for _, second := range stalledRequests() {
			c, err := net.Dial("tcp", g.HTTPAddr().String())
			must(t, err)
			_, err = io.WriteString(c, limited(second))
			must(t, err)
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || !second.grpc && resp.StatusCode != 429 || second.grpc && resp.Header.Get("Grpc-Status") != "8" {
				t.Errorf("%s beside %s: %v %v", second.name, r.name, resp, err)
			}
			_ = c.Close()
		}
		if n := inFlight(t, reg); n != 1 {
			t.Errorf("%s: %v requests are under way, want the first alone", r.name, n)
		}
		_ = first.Close()
		eventually(t, "the first is over", func() bool { return inFlight(t, reg) == 0 })
	}
	if resp, body := w.ask(g, call{key: "key-limited", body: ask}); resp.StatusCode != 200 {
		t.Errorf("the places of requests that came to nothing are not given back: %d %s", resp.StatusCode, body)
	}
}
