package regional_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/testkit"
	localtier "github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/regional"
)

// bytesCodec sends messages as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (bytesCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (bytesCodec) Name() string { return "proto" }

// grpcWorker is a worker's gRPC server: it returns what it received, and its behaviour follows the method's name.
type grpcWorker struct {
	addr      string
	stop      func() // as if the process had died
	metadata  chan metadata.MD
	openCalls atomic.Int64
	proceed   chan struct{}
}

func newGRPCWorker(t *testing.T, opts ...grpc.ServerOption) *grpcWorker {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	requireNoError(t, err)
	c := &grpcWorker{addr: l.Addr().String(), metadata: make(chan metadata.MD, 100), proceed: make(chan struct{})}
	s := grpc.NewServer(append(opts, grpc.ForceServerCodec(bytesCodec{}), grpc.UnknownServiceHandler(c.serveCall))...)
	go func() { _ = s.Serve(l) }()
	c.stop = s.Stop
	t.Cleanup(s.Stop)
	return c
}

func (c *grpcWorker) serveCall(_ any, s grpc.ServerStream) error {
	c.openCalls.Add(1)
	defer c.openCalls.Add(-1)
	md, _ := metadata.FromIncomingContext(s.Context())
	c.metadata <- md
	method, _ := grpc.MethodFromServerStream(s)
	switch _, name, _ := strings.Cut(method[1:], "/"); name {
	case "Fail":
		return status.Error(codes.FailedPrecondition, "no: ü")
	case "Hang":
		<-s.Context().Done()
		return s.Context().Err()
	case "ReadAndHang":
		var m []byte
		if err := s.RecvMsg(&m); err != nil {
			return err
		}
		c.proceed <- struct{}{}
		<-s.Context().Done()
		return s.Context().Err()
	case "Greet": // sends the head first and the message later
		if err := s.SendHeader(metadata.Pairs("x-greeting", "hello")); err != nil {
			return err
		}
	}
	s.SetTrailer(metadata.Pairs("x-last", "words"))
	for {
		var m []byte
		if err := s.RecvMsg(&m); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		m = append([]byte("re:"), m...)
		if err := s.SendMsg(&m); err != nil {
			return err
		}
	}
}

// zoneOf starts a real local tier behind the gateway, with one worker that also accepts gRPC calls.
func (w *testWorld) zoneOf(g *regional.Gateway, worker config.WorkerEntry) *localtier.Agent {
	w.t.Helper()
	return w.startZone(g, "fra", worker)
}

// startZone starts a real local tier behind the gateway of a region, with one worker.
func (w *testWorld) startZone(g *regional.Gateway, region string, worker config.WorkerEntry) *localtier.Agent {
	w.t.Helper()
	a, err := localtier.New(localtier.Config{
		Name: "l1", Region: region, Zone: region + "-a", Listen: "127.0.0.1:0", Gateways: []string{g.UplinkAddr().String()},
		Certs: w.issueCerts(identity.ID{Role: identity.RoleLocal, Region: region, Zone: region + "-a", Name: "l1"}), Workers: []config.WorkerEntry{worker},
		ScrapeInterval: 20 * time.Millisecond, UplinkInterval: 20 * time.Millisecond,
	})
	requireNoError(w.t, err)
	requireNoError(w.t, a.Start(context.Background()))
	w.t.Cleanup(func() { _ = a.Stop(stopContext(w.t)) })
	return a
}

// startSimWorker starts a simulated worker's HTTP server.
func startSimWorker(t *testing.T) string {
	s, err := gpu.New(gpu.Config{Listen: "127.0.0.1:0", GPU: "H100", Model: "Llama-3.1-8B", ServedModel: "small", Speed: 100})
	requireNoError(t, err)
	requireNoError(t, s.Start(context.Background()))
	t.Cleanup(func() { _ = s.Stop(stopContext(t)) })
	return "http://" + s.Addr().String()
}

// dialGRPC connects a gRPC client to a gateway.
func (w *testWorld) dialGRPC(g *regional.Gateway, creds credentials.TransportCredentials) *grpc.ClientConn {
	c, err := grpc.NewClient(g.HTTPAddr().String(), grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.ForceCodec(bytesCodec{})))
	requireNoError(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

func withAPIKey(ctx context.Context, pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, append([]string{"authorization", "Bearer key-acme"}, pairs...)...)
}

// withKey returns a context whose calls use another API key.
func withKey(ctx context.Context, key string, pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, append([]string{"authorization", "Bearer " + key}, pairs...)...)
}

func encodeInferRequest(model string) []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), model)
	return protowire.AppendBytes(protowire.AppendTag(b, 7, protowire.BytesType), make([]byte, 3000))
}

const inferMethod = "/inference.GRPCInferenceService/ModelInfer"

func TestGRPCIsForwardedThroughBothTiers(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	files := w.issuePublicCert("front")
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprintf("encrypted %v", encrypted), func(t *testing.T) {
			creds := insecure.NewCredentials()
			g := w.startGateway("fra", func(c *regional.Config) {
				c.Registry = prometheus.NewRegistry()
				reg = c.Registry
				if encrypted {
					c.HTTPCert, c.HTTPKey = files.Cert, files.Key
					creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
				}
			})
			callee := newGRPCWorker(t)
			w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: startSimWorker(t), GRPC: "http://" + callee.addr, Weight: 1})
			conn := w.dialGRPC(g, creds)
			waitForZoneSpec(t, conn)
			t.Run("unary, with the model in the message", func(t *testing.T) { checkUnaryCall(t, conn, callee) })
			t.Run("both ways at once", func(t *testing.T) { checkBidiStream(t, conn) })
			t.Run("a head before any message", func(t *testing.T) { checkHeaderBeforeMessage(t, conn) })
			t.Run("statuses", func(t *testing.T) { checkStatuses(t, conn) })
			t.Run("deadlines and cancels", func(t *testing.T) { checkDeadlines(t, conn, callee) })
			if n := readMetric(t, reg, "spillway_regional_passthrough_requests_total", "grpc"); n < 10 {
				t.Errorf("%v calls are counted", n)
			}
			testkit.Eventually(t, "nothing is under way", func() bool { return readInFlight(t, reg) == 0 && callee.openCalls.Load() == 0 })
		})
	}
}

// waitForZoneSpec waits until the zone has the spec, which adds the worker's own service to the allowed paths.
// Before that it allows inference only.
func waitForZoneSpec(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	testkit.Eventually(t, "a call is answered", func() bool {
		in, out := []byte("hi"), []byte(nil)
		return conn.Invoke(withAPIKey(t.Context(), "x-model", "small"), "/any.Service/Echo", &in, &out) == nil
	})
}

func checkUnaryCall(t *testing.T, conn *grpc.ClientConn, callee *grpcWorker) {
	for len(callee.metadata) > 0 {
		<-callee.metadata
	}
	var out []byte
	in := encodeInferRequest("best") // an alias of "small"
	var head, trailer metadata.MD
	requireNoError(t, conn.Invoke(withAPIKey(t.Context(), "x-mine", "1", "spillway-tenant", "root"), inferMethod, &in, &out, grpc.Header(&head), grpc.Trailer(&trailer)))
	if string(out) != "re:"+string(encodeInferRequest("small")) {
		t.Errorf("the worker read %.40q", out)
	}
	if len(head["x-request-id"]) != 1 || len(head["x-spillway-route"]) != 1 || head["x-spillway-route"][0] != "fra/fra-a/w1" || len(trailer["x-last"]) != 1 {
		t.Errorf("head %v, trailer %v", head, trailer)
	}
	md := <-callee.metadata
	if len(md["x-mine"]) != 1 || len(md["authorization"])+len(md["spillway-tenant"])+len(md["spillway-model"]) != 0 {
		t.Errorf("the worker was sent %v", md)
	}
	large := encodeInferRequest("small")
	large = protowire.AppendBytes(protowire.AppendTag(large, 7, protowire.BytesType), make([]byte, 3<<20))
	if err := conn.Invoke(withAPIKey(t.Context()), inferMethod, &large, &out); err != nil || len(out) != len(large)+3 {
		t.Errorf("a large message: %d bytes (%v)", len(out), err)
	}
}

func checkBidiStream(t *testing.T, conn *grpc.ClientConn) {
	s, err := conn.NewStream(withAPIKey(t.Context(), "x-model", "small"), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/any.Service/Chat")
	requireNoError(t, err)
	for i := range 50 { // each message is answered before the next one is sent
		in := []byte(fmt.Sprint("message ", i))
		requireNoError(t, s.SendMsg(&in))
		var out []byte
		requireNoError(t, s.RecvMsg(&out))
		if string(out) != "re:"+string(in) {
			t.Fatalf("%q is answered by %q", in, out)
		}
	}
	requireNoError(t, s.CloseSend())
	var out []byte
	if err := s.RecvMsg(&out); err != io.EOF || len(s.Trailer()["x-last"]) != 1 {
		t.Errorf("it ends with %v, %v", err, s.Trailer())
	}
}

func checkHeaderBeforeMessage(t *testing.T, conn *grpc.ClientConn) {
	s, err := conn.NewStream(withAPIKey(t.Context(), "x-model", "small"), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/any.Service/Greet")
	requireNoError(t, err)
	head, err := s.Header()
	if err != nil || len(head["x-greeting"]) != 1 {
		t.Errorf("the head is %v (%v)", head, err)
	}
	requireNoError(t, s.CloseSend())
	var out []byte
	if err := s.RecvMsg(&out); err != io.EOF {
		t.Error(err)
	}
}

func checkStatuses(t *testing.T, conn *grpc.ClientConn) {
	for name, tc := range map[string]struct {
		ctx    context.Context
		method string
		in     []byte
		code   codes.Code
		says   string
	}{
		"the worker's own":     {withAPIKey(t.Context(), "x-model", "small"), "/any.Service/Fail", nil, codes.FailedPrecondition, "no: ü"},
		"nobody":               {t.Context(), inferMethod, encodeInferRequest("small"), codes.Unauthenticated, "invalid_api_key"},
		"an unknown model":     {withAPIKey(t.Context()), inferMethod, encodeInferRequest("other"), codes.NotFound, "model_not_found"},
		"no model":             {withAPIKey(t.Context()), "/any.Service/Echo", nil, codes.InvalidArgument, "x-model"},
		"a model nobody has":   {withAPIKey(t.Context()), inferMethod, encodeInferRequest("unserved"), codes.Unavailable, "no_capacity"},
		"no model in it":       {withAPIKey(t.Context()), inferMethod, []byte{0x12, 1, 'x'}, codes.InvalidArgument, "does not name its model"},
		"a model not allowed":  {metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer key-narrow"), inferMethod, encodeInferRequest("small"), codes.PermissionDenied, "model_not_allowed"},
		"not of this region":   {metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer key-america"), inferMethod, encodeInferRequest("small"), codes.PermissionDenied, "residency"},
		"a class that is none": {withAPIKey(t.Context(), "x-spillway-class", "first"), inferMethod, encodeInferRequest("small"), codes.InvalidArgument, "class"},
	} {
		var out []byte
		err := conn.Invoke(tc.ctx, tc.method, &tc.in, &out)
		if s, _ := status.FromError(err); s.Code() != tc.code || !strings.Contains(strings.ToLower(s.Message()), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func checkDeadlines(t *testing.T, conn *grpc.ClientConn, callee *grpcWorker) {
	for len(callee.metadata) > 0 {
		<-callee.metadata
	}
	ctx, cancel := context.WithTimeout(withAPIKey(t.Context(), "x-model", "small"), time.Minute)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/any.Service/Hang")
	requireNoError(t, err)
	md := <-callee.metadata
	if callee.openCalls.Load() != 1 {
		t.Errorf("%d calls are open", callee.openCalls.Load())
	}
	if md["x-model"][0] != "small" {
		t.Errorf("the worker was sent %v", md)
	}
	cancel()
	var out []byte
	if err := s.RecvMsg(&out); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	testkit.Eventually(t, "the worker hears of the cancel", func() bool { return callee.openCalls.Load() == 0 })
	// The deadline is only in the header: the client itself has none.
	s, err = conn.NewStream(withAPIKey(t.Context(), "x-model", "small", "x-spillway-deadline-ms", "300"), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/any.Service/Hang")
	requireNoError(t, err)
	if err := s.RecvMsg(&out); status.Code(err) != codes.DeadlineExceeded && status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	testkit.Eventually(t, "the worker hears of the end", func() bool { return callee.openCalls.Load() == 0 })
}

// hanging counts the upgrades that wait for a response that never comes.
var hanging atomic.Int64

// startEchoWorker starts a worker that accepts WebSockets and echoes bytes.
func startEchoWorker(t *testing.T, stand string) (url string, open *atomic.Int64) {
	open = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			out, err := http.NewRequestWithContext(r.Context(), r.Method, stand+r.URL.RequestURI(), r.Body)
			if err != nil {
				return
			}
			resp, err := http.DefaultTransport.RoundTrip(out)
			if err != nil {
				return
			}
			defer func() { _ = resp.Body.Close() }()
			rw.WriteHeader(resp.StatusCode)
			_, _ = io.Copy(rw, resp.Body)
			return
		}
		if r.URL.Query().Get("hang") != "" {
			hanging.Add(1)
			defer hanging.Add(-1)
			<-r.Context().Done()
			return
		}
		if r.URL.Query().Get("deny") != "" {
			rw.WriteHeader(http.StatusTeapot)
			return
		}
		rw.Header().Set("Upgrade", "websocket")
		rw.Header().Set("Connection", "Upgrade")
		rw.Header().Set("Sec-WebSocket-Accept", "proof of "+r.Header.Get("Sec-WebSocket-Key"))
		rw.WriteHeader(http.StatusSwitchingProtocols)
		c, b, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		open.Add(1)
		defer open.Add(-1)
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "hello\n")
		for {
			line, err := b.ReadString('\n')
			if err != nil || line == "bye\n" {
				return
			}
			_, _ = io.WriteString(c, "re:"+line)
		}
	}))
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	t.Cleanup(s.CloseClientConnections)
	t.Cleanup(s.Close)
	return s.URL, open
}

// dialWebSocket requests a WebSocket and returns the response and the connection.
func dialWebSocket(t *testing.T, g *regional.Gateway, path, key string) (*http.Response, net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", g.HTTPAddr().String())
	requireNoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: abc\r\nSec-WebSocket-Version: 13\r\n\r\n", path, key)
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	requireNoError(t, err)
	return resp, c, in
}

func expectLine(t *testing.T, in *bufio.Reader, want string) {
	t.Helper()
	if line, err := in.ReadString('\n'); line != want+"\n" {
		t.Fatalf("%q (%v), want %q", line, err, want)
	}
}

func TestWebSocketsAreForwardedThroughBothTiers(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.Registry, c.TunnelIdle, c.TunnelLife = reg, time.Second, time.Hour })
	url, open := startEchoWorker(t, startSimWorker(t))
	w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: url, Weight: 1})
	testkit.Eventually(t, "an upgrade is granted", func() bool {
		resp, c, _ := dialWebSocket(t, g, "/v1/realtime?model=small", "key-acme")
		_ = c.Close()
		return resp.StatusCode == 101
	})
	testkit.Eventually(t, "the worker hears that it was closed", func() bool { return open.Load() == 0 })
	resp, c, in := dialWebSocket(t, g, "/v1/realtime?model=small&a=b", "key-acme")
	if resp.StatusCode != 101 || resp.Header.Get("Sec-Websocket-Accept") != "proof of abc" || resp.Header.Get("X-Spillway-Route") != "fra/fra-a/w1" || resp.Header.Get("Upgrade") != "websocket" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	expectLine(t, in, "hello")
	for _, line := range []string{"one", "POST / HTTP/1.1\r", " Content-Length : x\r", strings.Repeat("y", 100_000)} { // HTTP's framing rules do not apply here
		_, _ = io.WriteString(c, line+"\n")
		expectLine(t, in, "re:"+line)
	}
	if n := readMetric(t, reg, "spillway_regional_tunnels_open", ""); n != 1 || readInFlight(t, reg) != 1 {
		t.Errorf("%v tunnels are open, %v requests are under way", n, readInFlight(t, reg))
	}
	_, _ = io.WriteString(c, "bye\n")
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("then came %q (%v)", rest, err)
	}
	// A silent WebSocket is closed.
	_, _, in = dialWebSocket(t, g, "/v1/realtime?model=small", "key-acme")
	expectLine(t, in, "hello")
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("then came %q (%v)", rest, err)
	}
	testkit.Eventually(t, "the ends are counted", func() bool {
		return readMetric(t, reg, "spillway_regional_tunnels_total", "worker") == 1 && readMetric(t, reg, "spillway_regional_tunnels_total", "idle") == 1 &&
			readMetric(t, reg, "spillway_regional_tunnels_total", "client") >= 1 && open.Load() == 0
	})
	for path, want := range map[string]int{"/v1/realtime": 400, "/v1/realtime?model=nothing": 404, "/v1/realtime?model=small&deny=1": 418} {
		if resp, _, _ := dialWebSocket(t, g, path, "key-acme"); resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
	if resp, _, _ := dialWebSocket(t, g, "/v1/realtime?model=small", "nobody"); resp.StatusCode != 401 {
		t.Errorf("without a key: %d", resp.StatusCode)
	}
	if n := readInFlight(t, reg); n != 0 {
		t.Errorf("%v requests are under way still", n)
	}
}

// TestWebSocketOfALimitedKeyGetsWorkersOfItsModelsOnly: a WebSocket message may name any model that its worker
// serves.
func TestWebSocketOfALimitedKeyGetsWorkersOfItsModelsOnly(t *testing.T) {
	url, _ := startEchoWorker(t, startSimWorker(t))
	for models, limited := range map[string]int{"small": http.StatusSwitchingProtocols, "small large": http.StatusForbidden} {
		t.Run(models, func(t *testing.T) {
			w := newWorld(t)
			g := w.startGateway("fra", nil)
			w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: url, Models: strings.Fields(models), Weight: 1})
			testkit.Eventually(t, "the zone has the spec, which adds paths", func() bool {
				resp, body := w.getAnswer(g, clientCall{key: "key-acme", path: "/custom/run", body: askBody})
				return resp.StatusCode != http.StatusServiceUnavailable && !strings.Contains(body, "no such path")
			})
			testkit.Eventually(t, "an upgrade is granted", func() bool {
				resp, c, _ := dialWebSocket(t, g, "/v1/realtime?model=small", "key-acme")
				_ = c.Close()
				return resp.StatusCode == http.StatusSwitchingProtocols
			})
			if resp, _, _ := dialWebSocket(t, g, "/v1/realtime?model=small", "key-some"); resp.StatusCode != limited {
				t.Errorf("a key that is limited to the model: %d, want %d", resp.StatusCode, limited)
			}
		})
	}
}

// A stop waits for open tunnels, and closes the remaining ones at its deadline.
func TestStopClosesTunnelsAtItsDeadline(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	url, _ := startEchoWorker(t, startSimWorker(t))
	w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: url, Weight: 1})
	var in *bufio.Reader
	var c net.Conn
	testkit.Eventually(t, "an upgrade is granted", func() bool {
		var resp *http.Response
		resp, c, in = dialWebSocket(t, g, "/v1/realtime?model=small", "key-acme")
		return resp.StatusCode == 101
	})
	expectLine(t, in, "hello")
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- g.Stop(ctx) }()
	waitUntilClosed(t, g)
	_, _ = io.WriteString(c, "still here\n")
	expectLine(t, in, "re:still here")
	cancel()
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("the stop says %v", err)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("then came %q (%v)", rest, err)
	}
}

// TestExtraPathsPass: both tiers allow a path that the spec adds, with a body of any kind when a header names its
// model.
func TestExtraPathsPass(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	binary := http.Header{"X-Gateway-Model-Name": {"best"}, "Content-Type": {"application/octet-stream"}}
	resp, body := w.getAnswer(g, clientCall{key: "key-acme", path: "/custom/run?x=1", body: "\x00binary", header: binary})
	if resp.StatusCode != 200 || !strings.Contains(body, "hi") || resp.Header.Get("X-Spillway-Route") == "" {
		t.Errorf("%d %s %v", resp.StatusCode, body, resp.Header)
	}
	r := <-l.requests
	if r.RequestURI != "/custom/run?x=1" || string(<-l.bodies) != "\x00binary" || r.Header.Get("X-Gateway-Model-Name") != "small" || r.Header.Get("Spillway-Model") != "small" || r.Header.Get("Authorization") != "" {
		t.Errorf("below came %s %v", r.RequestURI, r.Header)
	}
	for name, tc := range map[string]struct {
		call   clientCall
		status int
	}{
		"no model":                    {clientCall{path: "/custom/run", body: "\x00", header: http.Header{"Content-Type": {"application/octet-stream"}}}, 400},
		"not JSON":                    {clientCall{path: "/custom/run", body: "\x00", header: http.Header{"X-Model": {"small"}}}, 400},
		"JSON behind a byte order":    {clientCall{path: "/custom/run", body: "\xef\xbb\xbf{}", header: http.Header{"X-Model": {"small"}, "Content-Type": {"application/json"}}}, 400},
		"a form that is urlencoded":   {clientCall{path: "/custom/run", body: "model=large", header: http.Header{"X-Model": {"small"}, "Content-Type": {"application/x-www-form-urlencoded"}}}, 415},
		"another model in the body":   {clientCall{path: "/api/chat", body: `{"model":"large"}`, header: http.Header{"X-Model": {"small"}}}, 400},
		"another model in the query":  {clientCall{path: "/v1/chat/completions?model=large", body: askBody}, 400},
		"two models in the headers":   {clientCall{path: "/custom/run", body: "{}", header: http.Header{"X-Model": {"small"}, "X-Gateway-Model-Name": {"large"}}}, 400},
		"a model that is not allowed": {clientCall{path: "/api/chat", key: "key-narrow", body: `{"model":"small"}`, header: http.Header{"X-Model": {"small"}}}, 403},
		"a path that is not listed":   {clientCall{path: "/custom/other", body: askBody}, 404},
	} {
		if tc.call.key == "" {
			tc.call.key = "key-acme"
		}
		if resp, body := w.getAnswer(g, tc.call); resp.StatusCode != tc.status {
			t.Errorf("%s: %d %s, want %d", name, resp.StatusCode, body, tc.status)
		}
	}
	if n := len(l.requests); n > 0 {
		t.Errorf("%d of them went on", n)
	}
}

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
