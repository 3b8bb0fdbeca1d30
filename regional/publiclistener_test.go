package regional_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/internal/httpedge/clientip"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/regional"
)

// readMetric reads a counter or gauge by its name and the value of one label, if it has any.
func readMetric(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	requireNoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			if label == "" || len(m.Label) > 0 && m.Label[0].GetValue() == label {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// issuePublicCert issues a certificate for a public listener.
func (w *testWorld) issuePublicCert(name string) identity.CertFiles {
	w.t.Helper()
	files, err := w.ca.IssueCert(identity.ID{TrustDomain: "test.example", Role: identity.RoleOperator, Name: name}, w.t.TempDir(), time.Hour)
	requireNoError(w.t, err)
	return files
}

// trustLoopback trusts loopback as a proxy that reports clients in the header.
func trustLoopback(header clientip.ForwardHeader) clientip.TrustedProxies {
	return clientip.NewTrustedProxies([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, header)
}

// hasDemandFrom reports whether the region reports demand from a cell of the demo atlas.
func (w *testWorld) hasDemandFrom(region, cell string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, s := range w.summaries {
		for _, d := range s.Demand {
			if p.Region == region && d.Cell == cell {
				return true
			}
		}
	}
	return false
}

func TestTrustedProxyIdentifiesClient(t *testing.T) {
	for _, tc := range []struct {
		name    string
		headed  bool
		trusted clientip.TrustedProxies
		head    string // PROXY header
		lines   string
		status  int
		reason  string // of a refused connection
		there   bool   // the client's own location is used
	}{
		{name: "X-Forwarded-For of a proxy", trusted: trustLoopback(""), lines: "X-Forwarded-For: 1.1.1.1, 203.0.113.7\r\n", status: 200, there: true},
		{name: "X-Forwarded-For of a stranger", lines: "X-Forwarded-For: 203.0.113.7\r\n", status: 200},
		{name: "Forwarded", trusted: trustLoopback(clientip.Forwarded), lines: "Forwarded: for=203.0.113.7;proto=https\r\n", status: 200, there: true},
		{name: "PROXY", headed: true, trusted: trustLoopback(""), head: "PROXY TCP4 203.0.113.7 10.0.0.1 4000 443\r\n", status: 200, there: true},
		{name: "PROXY before another proxy", headed: true, trusted: trustLoopback(""), head: "PROXY TCP4 127.0.0.9 10.0.0.1 4000 443\r\n", lines: "X-Forwarded-For: 203.0.113.7\r\n", status: 200, there: true},
		{name: "no PROXY", headed: true, trusted: trustLoopback(""), reason: "proxy_missing"},
		{name: "half a PROXY", headed: true, trusted: trustLoopback(""), head: "PROXY TCP4 nonsense\r\n", reason: "proxy_malformed"},
		{name: "PROXY of a stranger", head: "PROXY TCP4 203.0.113.7 10.0.0.1 4000 443\r\n", status: 400, reason: "framing_request_line"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			reg := prometheus.NewRegistry()
			g := w.startGateway("fra", func(c *regional.Config) { c.Trusted, c.ProxyHeaders, c.Registry = tc.trusted, tc.headed, reg })
			w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
			testkit.Eventually(t, "small is served", func() bool {
				statuses, _, _, _ := sendBytes(t, g.HTTPAddr().String(), 1, true, proxyPreamble(tc.headed), "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer key-acme\r\n\r\n")
				return len(statuses) == 1 && statuses[0] == 200
			})
			testkit.Eventually(t, "an answer", func() bool {
				statuses, _, _, _ := sendBytes(t, g.HTTPAddr().String(), 1, true, tc.head, rawRequest(tc.lines+"Connection: close\r\n"+contentLengthLine(askBody), askBody))
				return tc.status == 0 && len(statuses) == 0 || len(statuses) == 1 && statuses[0] == tc.status
			})
			if tc.reason != "" && readMetric(t, reg, "spillway_regional_connections_refused_total", tc.reason) < 1 {
				t.Errorf("%s was not counted", tc.reason)
			}
			place := demoCellOf(t, "203.0.113.7")
			if tc.there {
				testkit.Eventually(t, "demand of "+place, func() bool { return w.hasDemandFrom("fra", place) })
			} else if w.hasDemandFrom("fra", place) {
				t.Error("a stranger was believed")
			}
		})
	}
}

func proxyPreamble(headed bool) string {
	if headed {
		return "PROXY UNKNOWN\r\n"
	}
	return ""
}

// newH3Client returns an HTTP/3 client whose connections end with the test.
func newH3Client(t *testing.T) *http.Client {
	tr := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, QUICConfig: &quic.Config{HandshakeIdleTimeout: time.Minute}}
	t.Cleanup(func() { _ = tr.Close() })
	return &http.Client{Transport: tr}
}

func TestHTTP3ServesRequests(t *testing.T) {
	w := newWorld(t)
	files, reg := w.issuePublicCert("front"), prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.HTTPCert, c.HTTPKey, c.Registry = files.Cert, files.Key, reg })
	proceed := make(chan struct{})
	w.startLocal(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Slow") != "" {
			rw.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(rw, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")
			_ = http.NewResponseController(rw).Flush()
			<-proceed
			_, _ = io.WriteString(rw, "data: [DONE]\n\n")
			return
		}
		replyCompletion(rw, r)
	}, roomyModel("small"))
	base := "https://" + g.HTTPAddr().String()
	over := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	defer over.CloseIdleConnections()
	resp, err := over.Get(base + "/healthz")
	requireNoError(t, err)
	_ = resp.Body.Close()
	_, port, _ := net.SplitHostPort(g.HTTPAddr().String())
	if resp.ProtoMajor != 2 || resp.Header.Get("Alt-Svc") != `h3=":`+port+`"; ma=86400` {
		t.Errorf("over %s: Alt-Svc is %q", resp.Proto, resp.Header.Get("Alt-Svc"))
	}
	client := newH3Client(t)
	do := func(ctx context.Context, slow bool, body string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, "POST", base+"/v1/chat/completions", strings.NewReader(body))
		requireNoError(t, err)
		r.Header.Set("Authorization", "Bearer key-acme")
		if slow {
			r.Header.Set("X-Slow", "1")
		}
		return client.Do(r)
	}
	testkit.Eventually(t, "an answer over HTTP/3", func() bool {
		resp, err := do(t.Context(), false, askBody)
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode == 200 && resp.ProtoMajor == 3 && strings.Contains(string(b), "hi") && resp.Header.Get("Alt-Svc") == ""
	})
	if n := readMetric(t, reg, "spillway_regional_http3_connections", ""); n != 1 {
		t.Errorf("%v connections over HTTP/3 are counted", n)
	}
	resp, err = do(t.Context(), false, strings.Repeat("x", 200_000))
	requireNoError(t, err)
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 413 || errorCode(string(b)) != openai.CodeBodyTooLarge {
		t.Errorf("a large body: %d %s", resp.StatusCode, b)
	}
	// A stream that runs while the gateway stops is received to its end.
	resp, err = do(t.Context(), true, strings.Replace(askBody, `"model"`, `"stream":true,"model"`, 1))
	requireNoError(t, err)
	one := make([]byte, 6)
	_, err = io.ReadFull(resp.Body, one)
	requireNoError(t, err)
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		stopped <- g.Stop(ctx)
	}()
	waitUntilClosed(t, g)
	close(proceed)
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("the stream ended as %q (%v)", rest, err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stopping: %v", err)
	}
}

// notifyingSessionCache is a client's TLS session cache that signals when it receives a session.
type notifyingSessionCache struct {
	tls.ClientSessionCache
	stored chan struct{}
}

func (s notifyingSessionCache) Put(key string, state *tls.ClientSessionState) {
	s.ClientSessionCache.Put(key, state)
	if state != nil {
		s.stored <- struct{}{}
	}
}

// 0-RTT is disabled: early data can be replayed, and requests are billed.
func TestHTTP3TakesNoEarlyData(t *testing.T) {
	w := newWorld(t)
	files := w.issuePublicCert("front")
	g := w.startGateway("fra", func(c *regional.Config) { c.HTTPCert, c.HTTPKey = files.Cert, files.Key })
	tickets := notifyingSessionCache{tls.NewLRUClientSessionCache(4), make(chan struct{}, 16)}
	cfg := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h3"}, ClientSessionCache: tickets}
	for range 2 {
		c, err := quic.DialAddrEarly(t.Context(), g.HTTPAddr().String(), cfg, nil)
		requireNoError(t, err)
		<-c.HandshakeComplete()
		if c.ConnectionState().Used0RTT {
			t.Error("early data was taken")
		}
		<-tickets.stored
		_ = c.CloseWithError(0, "")
	}
}

// A client that resets streams rapidly is disconnected, over HTTP/2 and over HTTP/3.
func TestRapidResetsEndTheConnection(t *testing.T) {
	w := newWorld(t)
	files, reg := w.issuePublicCert("front"), prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.HTTPCert, c.HTTPKey, c.Registry = files.Cert, files.Key, reg })
	w.waitUntilReady(g)
	conn, err := tls.Dial("tcp", g.HTTPAddr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	requireNoError(t, err)
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, err = conn.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), appendH2Frame(4, 0, 0, nil)...))
	requireNoError(t, err)
	block := encodeH2Headers(":method", "GET", ":scheme", "https", ":path", "/healthz", ":authority", "x")
	var flood []byte
	for id := uint32(1); id < 1400; id += 2 {
		flood = append(append(flood, appendH2Frame(1, 5, id, block)...), appendH2Frame(3, 0, id, []byte{0, 0, 0, 8})...)
	}
	_, err = conn.Write(flood)
	requireNoError(t, err)
	if away := readH2Frame(t, conn, 7); binary.BigEndian.Uint32(away[4:]) != 0xb {
		t.Errorf("it is told %x, not ENHANCE_YOUR_CALM", away)
	}
	if n := readMetric(t, reg, "spillway_regional_connections_refused_total", "http2_resets"); n != 1 {
		t.Errorf("%v such connections are counted", n)
	}
	client := newH3Client(t)
	ask := func(ctx context.Context) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, "POST", "https://"+g.HTTPAddr().String()+"/v1/chat/completions", blockedBody{ctx})
		requireNoError(t, err)
		r.Header.Set("Authorization", "Bearer key-acme")
		return client.Do(r)
	}
	ctx, over := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for ctx.Err() == nil {
				ctx, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
				if resp, err := ask(ctx); err == nil {
					_ = resp.Body.Close()
				}
				cancel()
			}
		})
	}
	defer all.Wait()
	defer over()
	testkit.Eventually(t, "resets over HTTP/3 end a connection", func() bool {
		return readMetric(t, reg, "spillway_regional_connections_refused_total", "http3_resets") > 0
	})
}

// blockedBody is a body that never arrives.
type blockedBody struct{ ctx context.Context }

func (b blockedBody) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, b.ctx.Err() }

func TestPublicCertificateIsReplaced(t *testing.T) {
	w := newWorld(t)
	files, next := w.issuePublicCert("front"), w.issuePublicCert("next")
	g := w.startGateway("fra", func(c *regional.Config) { c.HTTPCert, c.HTTPKey = files.Cert, files.Key })
	shown := func(overQUIC bool) *x509.Certificate {
		cfg := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h3", "http/1.1"}}
		if overQUIC {
			c, err := quic.DialAddr(t.Context(), g.HTTPAddr().String(), cfg, nil)
			requireNoError(t, err)
			defer func() { _ = c.CloseWithError(0, "") }()
			return c.ConnectionState().TLS.PeerCertificates[0]
		}
		c, err := tls.Dial("tcp", g.HTTPAddr().String(), cfg)
		requireNoError(t, err)
		defer func() { _ = c.Close() }()
		return c.ConnectionState().PeerCertificates[0]
	}
	before := shown(false)
	requireNoError(t, os.WriteFile(files.Cert, []byte("rubbish"), 0o600))
	if err := g.Reload(); err == nil {
		t.Error("a certificate that is none was taken")
	}
	if !shown(false).Equal(before) {
		t.Error("a bad certificate replaced a good one")
	}
	for from, to := range map[string]string{next.Cert: files.Cert, next.Key: files.Key} {
		b, err := os.ReadFile(from)
		requireNoError(t, err)
		requireNoError(t, os.WriteFile(to, b, 0o600))
	}
	requireNoError(t, g.Reload())
	for _, overQUIC := range []bool{false, true} {
		if shown(overQUIC).Equal(before) {
			t.Errorf("the old certificate is shown still (QUIC: %v)", overQUIC)
		}
	}
}

func TestStreamsPerClientAreBounded(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", func(c *regional.Config) { c.ClientStreams, c.Trusted = 3, trustLoopback("") })
	proceed := make(chan struct{})
	l := w.startLocal(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) { <-proceed; replyCompletion(rw, r) }, roomyModel("small"))
	w.waitUntilServed(g, "small")
	var all sync.WaitGroup
	var good atomic.Int64
	for range 3 {
		all.Go(func() {
			if resp, _ := w.getAnswer(g, clientCall{key: "key-acme", body: askBody, header: http.Header{"X-Forwarded-For": {"203.0.113.7"}}}); resp.StatusCode == 200 {
				good.Add(1)
			}
		})
	}
	testkit.Eventually(t, "three are at work", func() bool { return len(l.requests) == 3 })
	resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: askBody, header: http.Header{"X-Forwarded-For": {"203.0.113.7"}}})
	if resp.StatusCode != 429 || errorCode(body) != openai.CodeClientStreams || resp.Header.Get("Retry-After") == "" {
		t.Errorf("the fourth got %d %s", resp.StatusCode, body)
	}
	all.Go(func() {
		if resp, _ := w.getAnswer(g, clientCall{key: "key-acme", body: askBody, header: http.Header{"X-Forwarded-For": {"203.0.113.8"}}}); resp.StatusCode == 200 {
			good.Add(1)
		}
	})
	testkit.Eventually(t, "another client is let in", func() bool { return len(l.requests) == 4 })
	close(proceed)
	all.Wait()
	if good.Load() != 4 {
		t.Errorf("%d of 4 were served", good.Load())
	}
	testkit.Eventually(t, "the address is forgotten", func() bool {
		resp, _ := w.getAnswer(g, clientCall{key: "key-acme", body: askBody, header: http.Header{"X-Forwarded-For": {"203.0.113.7"}}})
		return resp.StatusCode == 200
	})
}

// Plain HTTP on an HTTPS port gets a response that names the error.
func TestPlainHTTPOnTLSPortIsExplained(t *testing.T) {
	w := newWorld(t)
	files := w.issuePublicCert("front")
	g := w.startGateway("fra", func(c *regional.Config) { c.HTTPCert, c.HTTPKey, c.NoHTTP3 = files.Cert, files.Key, true })
	statuses, last, _, closed := sendBytes(t, g.HTTPAddr().String(), 1, true, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if len(statuses) != 1 || statuses[0] != 400 || last != openai.CodeFraming || !closed {
		t.Errorf("got %v %s, closed %v", statuses, last, closed)
	}
	c, err := quic.DialAddr(t.Context(), g.HTTPAddr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h3"}}, &quic.Config{HandshakeIdleTimeout: 300 * time.Millisecond})
	if err == nil {
		_ = c.CloseWithError(0, "")
		t.Error("HTTP/3 is spoken where it was left out")
	}
	if errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// demoCellOf returns the cell of the demo atlas for an address.
func demoCellOf(t *testing.T, addr string) string {
	t.Helper()
	atlas, err := geofiles.NewLiveAtlas(geo.Config{Demo: true})
	requireNoError(t, err)
	return geo.CellName(atlas.Locate(netip.MustParseAddr(addr)).Cell)
}

// waitUntilReady waits until a gateway with a TLS listener has its spec.
func (w *testWorld) waitUntilReady(g *regional.Gateway) {
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	w.t.Cleanup(tr.CloseIdleConnections)
	testkit.Eventually(w.t, "the gateway is ready", func() bool {
		r, err := http.NewRequest("GET", "https://"+g.HTTPAddr().String()+"/v1/models", nil)
		requireNoError(w.t, err)
		r.Header.Set("Authorization", "Bearer key-acme")
		resp, err := (&http.Client{Transport: tr}).Do(r)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == 200
	})
}

// TestSlowRequestHeadEndsTheConnection covers HTTP/2, where net/http has no bound for the time of a head. The
// connection is closed without a message, because its client does not read, and another client is served
// meanwhile.
func TestSlowRequestHeadEndsTheConnection(t *testing.T) {
	w := newWorld(t)
	files, reg := w.issuePublicCert("front"), prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) {
		c.HTTPCert, c.HTTPKey, c.Registry, c.HeaderTimeout = files.Cert, files.Key, reg, 2*time.Second
	})
	w.waitUntilReady(g)
	conn, err := tls.Dial("tcp", g.HTTPAddr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	requireNoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), appendH2Frame(4, 0, 0, nil)...))
	requireNoError(t, err)
	_, err = conn.Write(appendH2Frame(1, 0, 1, encodeH2Headers(":method", "POST"))) // END_HEADERS is not set, and no frame follows
	requireNoError(t, err)
	if code, err := getHealthOverH2(g); code != http.StatusOK {
		t.Errorf("meanwhile another client has %d: %v", code, err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	begun := time.Now()
	_, err = io.Copy(io.Discard, conn)
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		t.Fatal("a minute of an unfinished head ended nothing")
	}
	if n := readMetric(t, reg, "spillway_regional_connections_refused_total", "http2_slow_heads"); n != 1 {
		t.Errorf("after %v %v such connections are counted: %v", time.Since(begun), n, err)
	}
}
