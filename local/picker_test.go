package local_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
)

const (
	duplexMode   = filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	bufferedMode = filterv3.ProcessingMode_BUFFERED
	headersMode  = filterv3.ProcessingMode_NONE
)

// withPicker turns on the endpoint picker without TLS.
func withPicker(c *local.Config) {
	c.EndpointPicker = config.EndpointPicker{Listen: "127.0.0.1:0", Plain: true, MaxStreams: 100, Fallbacks: 1}
}

// pickerProxy is the client side of an endpoint picker, as Envoy's ext_proc filter is.
type pickerProxy struct {
	t    testing.TB
	conn *grpc.ClientConn
}

func dialPicker(t testing.TB, a *local.Agent) *pickerProxy {
	t.Helper()
	conn, err := grpc.NewClient(a.PickerAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &pickerProxy{t, conn}
}

// pickerStream is one request of a proxy.
type pickerStream struct {
	extprocv3.ExternalProcessor_ProcessClient
	t      testing.TB
	mode   filterv3.ProcessingMode_BodySendMode
	cancel context.CancelFunc
}

func (p *pickerProxy) open(mode filterv3.ProcessingMode_BodySendMode) *pickerStream {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p.t.Cleanup(cancel)
	s, err := extprocv3.NewExternalProcessorClient(p.conn).Process(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	return &pickerStream{s, p.t, mode, cancel}
}

func encodeHeaders(kv ...string) *extprocv3.HttpHeaders {
	h := &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{}}
	for i := 0; i < len(kv); i += 2 {
		h.Headers.Headers = append(h.Headers.Headers, &corev3.HeaderValue{Key: kv[i], RawValue: []byte(kv[i+1])})
	}
	return h
}

// sendHead sends the head of a chat completion; subset, when not nil, is the hint.
func (s *pickerStream) sendHead(subset []string, more ...string) {
	s.t.Helper()
	m := &extprocv3.ProcessingRequest{
		Request:        &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: encodeHeaders(append([]string{":method", "POST", ":path", "/v1/chat/completions", ":authority", "x", "content-type", "application/json"}, more...)...)},
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: s.mode, ResponseBodyMode: duplexMode},
	}
	if subset != nil {
		var list []any
		for _, at := range subset {
			list = append(list, at)
		}
		v, _ := structpb.NewStruct(map[string]any{"x-gateway-destination-endpoint-subset": list})
		m.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb.subset_hint": v}}
	}
	if err := s.Send(m); err != nil {
		s.t.Fatal(err)
	}
}

func (s *pickerStream) sendBody(text string, end bool) {
	s.t.Helper()
	if err := s.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(text), EndOfStream: end}}}); err != nil {
		s.t.Fatal(err)
	}
}

// pickerVerdict is what the picker has answered a request: an endpoint and the body to send, or an answer of its own.
type pickerVerdict struct {
	endpoints []string
	body      string
	immediate *extprocv3.ImmediateResponse
}

// awaitVerdict reads replies until the request can go on, and checks that header and metadata name the same endpoints.
func (s *pickerStream) awaitVerdict(body string) pickerVerdict {
	s.t.Helper()
	out := pickerVerdict{body: body}
	for {
		m, err := s.Recv()
		if err != nil {
			s.t.Fatalf("waiting for an endpoint: %v", err)
		}
		if out.immediate = m.GetImmediateResponse(); out.immediate != nil {
			return out
		}
		c := m.GetRequestHeaders().GetResponse()
		if b := m.GetRequestBody(); b != nil {
			if c = b.GetResponse(); s.mode == duplexMode {
				part := c.GetBodyMutation().GetStreamedResponse()
				if out.body += string(part.GetBody()); part.GetEndOfStream() {
					return out
				}
				continue
			}
			if text := c.GetBodyMutation().GetBody(); text != nil {
				out.body = string(text)
			}
		}
		for _, o := range c.GetHeaderMutation().GetSetHeaders() {
			if o.GetHeader().GetKey() == "x-gateway-destination-endpoint" {
				out.endpoints = strings.Split(string(o.GetHeader().GetRawValue()), ",")
			}
		}
		named := m.GetDynamicMetadata().GetFields()["envoy.lb"].GetStructValue().GetFields()["x-gateway-destination-endpoint"].GetStringValue()
		if named != strings.Join(out.endpoints, ",") {
			s.t.Fatalf("header %v, metadata %q", out.endpoints, named)
		}
		if len(out.endpoints) > 0 {
			if s.mode != duplexMode {
				return out
			}
			out.body = ""
		}
	}
}

// ask sends a whole request and returns the verdict.
func (s *pickerStream) ask(body string, subset []string, more ...string) pickerVerdict {
	s.t.Helper()
	s.sendHead(subset, more...)
	if s.mode != headersMode {
		half := len(body) / 2
		if s.mode == duplexMode {
			s.sendBody(body[:half], false)
			s.sendBody(body[half:], true)
		} else {
			s.sendBody(body, true)
		}
	}
	return s.awaitVerdict(body)
}

// sendAnswerHead sends the head of an answer and awaits the reply.
func (s *pickerStream) sendAnswerHead(status, contentType string, end bool, metadata *corev3.Metadata) map[string]string {
	s.t.Helper()
	h := encodeHeaders(":status", status, "content-type", contentType)
	h.EndOfStream = end
	if err := s.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: h}, MetadataContext: metadata}); err != nil {
		s.t.Fatal(err)
	}
	m, err := s.Recv()
	if err != nil || m.GetResponseHeaders() == nil {
		s.t.Fatalf("%v %v", m, err)
	}
	out := map[string]string{}
	for _, o := range m.GetResponseHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		out[o.GetHeader().GetKey()] = string(o.GetHeader().GetRawValue())
	}
	return out
}

// sendAnswer sends a part of an answer and checks that it comes back.
func (s *pickerStream) sendAnswer(text string, end bool) {
	s.t.Helper()
	if err := s.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte(text), EndOfStream: end}}}); err != nil {
		s.t.Fatal(err)
	}
	m, err := s.Recv()
	if part := m.GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse(); err != nil || string(part.GetBody()) != text || part.GetEndOfStream() != end {
		s.t.Fatalf("the part %q came back as %v, %v", text, m, err)
	}
}

// countInFlight sums what the ledger holds for the workers.
func countInFlight(a *local.Agent) (n int) {
	for _, w := range a.Status().Workers {
		n += int(w.InFlight)
	}
	return n
}

func endpointOf(w *fakeVLLM) string { return strings.TrimPrefix(w.URL, "http://") }

const pickerUsage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n"

func TestPickerChoosesEndpointInEachBodyMode(t *testing.T) {
	w1, w2 := newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2")
	a := startAgent(t, withPicker, w1, w2)
	p := dialPicker(t, a)
	for _, mode := range []filterv3.ProcessingMode_BodySendMode{duplexMode, bufferedMode, headersMode} {
		s := p.open(mode)
		v := s.ask(oneSlotChat, nil, "x-client-request-id", "id-1")
		if v.immediate != nil || len(v.endpoints) != 2 || v.endpoints[0] == v.endpoints[1] || v.body != oneSlotChat {
			t.Fatalf("%s: %+v", mode, v)
		}
		if n := countInFlight(a); n != 1 {
			t.Errorf("%s: %d in flight", mode, n)
		}
		if h := s.sendAnswerHead("200", "text/event-stream", false, nil); h["x-request-id"] != "id-1" || !strings.Contains(h["server-timing"], "queue") {
			t.Errorf("%s: answer headers %v", mode, h)
		}
		s.sendAnswer("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", false)
		s.sendAnswer(pickerUsage, true)
		if n := countInFlight(a); n != 0 {
			t.Errorf("%s: %d in flight after the end", mode, n)
		}
		_ = s.CloseSend()
		if _, err := s.Recv(); err != io.EOF {
			t.Errorf("%s: the stream ended with %v", mode, err)
		}
	}
	if m := modelSummary(a); m == nil {
		t.Error("no summary")
	}
}

func TestPickerKeepsToSubset(t *testing.T) {
	w1, w2 := newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2")
	a := startAgent(t, withPicker, w1, w2)
	p := dialPicker(t, a)
	for range 5 {
		s := p.open(duplexMode)
		if v := s.ask(oneSlotChat, []string{endpointOf(w2)}); len(v.endpoints) != 1 || v.endpoints[0] != endpointOf(w2) {
			t.Fatalf("%+v", v)
		}
		s.cancel()
	}
	for _, subset := range [][]string{{}, {"10.1.2.3:80"}, {"no address"}} {
		v := p.open(duplexMode).ask(oneSlotChat, subset)
		if v.immediate.GetStatus().GetCode() != 503 {
			t.Errorf("subset %v: %+v", subset, v)
		}
	}
	testkit.Eventually(t, "the ledger to be empty", func() bool { return countInFlight(a) == 0 })
}

func TestPickerRefusals(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	w.kvBlocks = 4
	a := startAgent(t, func(c *local.Config) {
		withPicker(c)
		c.Spec = &spec.Spec{Routing: spec.Routing{MaxBody: 4096, Queue: spec.QueuePolicy{MaxRequests: 1, TenantShare: 1}}}
	}, w)
	p := dialPicker(t, a)
	for _, c := range []struct {
		name, body string
		status     int
	}{
		{"malformed", `{"model":`, 400},
		{"no model", `{"messages":[]}`, 400},
		{"unknown model", `{"model":"other","messages":[{"role":"user","content":"hi"}]}`, 404},
		{"too large", `{"model":"llama-3.1-8b","messages":"` + strings.Repeat("x", 5000) + `"}`, 413},
	} {
		if v := p.open(duplexMode).ask(c.body, nil); int(v.immediate.GetStatus().GetCode()) != c.status || !strings.Contains(string(v.immediate.GetBody()), "error") {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
	running := p.open(duplexMode)
	if v := running.ask(oneSlotChat, nil); len(v.endpoints) != 1 {
		t.Fatalf("%+v", v)
	}
	waiting := p.open(duplexMode)
	waiting.sendHead(nil)
	waiting.sendBody(oneSlotChat, true)
	testkit.Eventually(t, "one waiting", func() bool { return countWaiting(a) == 1 })
	v := p.open(duplexMode).ask(oneSlotChat, nil)
	retry := ""
	for _, o := range v.immediate.GetHeaders().GetSetHeaders() {
		if o.GetHeader().GetKey() == "retry-after" {
			retry = string(o.GetHeader().GetRawValue())
		}
	}
	if v.immediate.GetStatus().GetCode() != 429 || retry == "" {
		t.Errorf("a full queue: %+v", v)
	}
	waiting.cancel() // in the queue
	testkit.Eventually(t, "none waiting", func() bool { return countWaiting(a) == 0 })
	running.sendAnswerHead("200", "text/event-stream", false, nil)
	running.sendAnswer("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", false)
	running.cancel() // while decoding
	testkit.Eventually(t, "the ledger to be empty", func() bool { return countInFlight(a) == 0 })
}

func countWaiting(a *local.Agent) (n int) {
	m := modelSummary(a)
	if m == nil {
		return 0
	}
	return a.QueueLength("llama-3.1-8b")
}

func TestPickerFollowsServedEndpoint(t *testing.T) {
	w1, w2 := newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2")
	a := startAgent(t, withPicker, w1, w2)
	s := dialPicker(t, a).open(duplexMode)
	v := s.ask(oneSlotChat, nil)
	served, _ := structpb.NewStruct(map[string]any{"x-gateway-destination-endpoint-served": v.endpoints[1]})
	s.sendAnswerHead("200", "text/event-stream", false, &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": served}})
	for _, w := range a.Status().Workers {
		want := 0
		if strings.HasSuffix(w.URL, v.endpoints[1]) {
			want = 1
		}
		if int(w.InFlight) != want {
			t.Errorf("%s has %d in flight, want %d", w.Name, w.InFlight, want)
		}
	}
	s.sendAnswer(pickerUsage, true)
	if n := countInFlight(a); n != 0 {
		t.Errorf("%d in flight after the end", n)
	}
}

func TestPickerNoticesWorkerDeath(t *testing.T) {
	w1, w2 := newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2")
	a := startAgent(t, withPicker, w1, w2)
	p := dialPicker(t, a)
	s := p.open(duplexMode)
	v := s.ask(oneSlotChat, nil)
	dead, other := w1, w2
	if v.endpoints[0] == endpointOf(w2) {
		dead, other = w2, w1
	}
	dead.CloseClientConnections()
	dead.Close()
	s.cancel() // Envoy resets its stream when the worker breaks off
	testkit.Eventually(t, "the dead worker to be ineligible", func() bool { return countReady(a) == 1 })
	for range 4 {
		s := p.open(duplexMode)
		if v := s.ask(oneSlotChat, nil); len(v.endpoints) != 1 || v.endpoints[0] != endpointOf(other) {
			t.Errorf("%+v", v)
		}
		s.cancel()
	}
	if v := p.open(duplexMode).ask(oneSlotChat, []string{endpointOf(dead)}); v.immediate.GetStatus().GetCode() != 503 {
		t.Errorf("a subset of dead workers: %+v", v)
	}
	testkit.Eventually(t, "the ledger to be empty", func() bool { return countInFlight(a) == 0 })
}

// TestPickerIsFairBetweenTenants: one flow has filled the queue before another comes with as much. The second gets every second turn.
func TestPickerIsFairBetweenTenants(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	w.kvBlocks = 4
	a := startAgent(t, func(c *local.Config) {
		withPicker(c)
		c.Spec = &spec.Spec{Tenants: []spec.Tenant{{Name: spec.DefaultTenant, Weight: 1, Trusted: true}}}
	}, w)
	p := dialPicker(t, a)
	holder := p.open(duplexMode)
	if v := holder.ask(oneSlotChat, nil, "x-gateway-inference-fairness-id", "first"); len(v.endpoints) != 1 {
		t.Fatalf("%+v", v)
	}
	type placed struct {
		flow   string
		stream *pickerStream
	}
	turns := make(chan placed, 8)
	for i, flow := range []string{"first", "first", "first", "first", "second", "second", "second", "second"} {
		s := p.open(duplexMode)
		s.sendHead(nil, "x-gateway-inference-fairness-id", flow)
		s.sendBody(oneSlotChat, true)
		testkit.Eventually(t, "the request to wait", func() bool { return countWaiting(a) == i+1 })
		go func() {
			if _, err := s.Recv(); err == nil {
				turns <- placed{flow, s}
			}
		}()
	}
	holder.cancel()
	var order []string
	for range 8 {
		next := <-turns
		order = append(order, next.flow)
		if m, err := next.stream.Recv(); err != nil || m.GetRequestBody() == nil {
			t.Fatalf("%v %v", m, err)
		}
		next.stream.sendAnswerHead("200", "text/event-stream", false, nil)
		next.stream.sendAnswer("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":40}}\n\n", false)
		next.stream.sendAnswer("data: [DONE]\n\n", true)
	}
	early := 0
	for _, flow := range order[:4] {
		if flow == "second" {
			early++
		}
	}
	if early < 2 {
		t.Errorf("of the first four turns the second flow got %d: %v", early, order)
	}
	testkit.Eventually(t, "the ledger to be empty", func() bool { return countInFlight(a) == 0 })
}

func TestPickerHealthAndStop(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	var p *pickerProxy
	a := startAgent(t, withPicker, w)
	p = dialPicker(t, a)
	health := healthv1.NewHealthClient(p.conn)
	for _, service := range []string{"", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"} {
		testkit.Eventually(t, "serving "+service, func() bool {
			r, err := health.Check(context.Background(), &healthv1.HealthCheckRequest{Service: service})
			return err == nil && r.GetStatus() == healthv1.HealthCheckResponse_SERVING
		})
	}
	watch, err := health.Watch(context.Background(), &healthv1.HealthCheckRequest{Service: "readiness"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Fatal(r, err)
	}
	s := p.open(duplexMode)
	s.ask(oneSlotChat, nil)
	done := make(chan error)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		done <- a.Stop(ctx)
	}()
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health while stopping: %v %v", r, err)
	}
	if _, err := s.Recv(); err != io.EOF { // shortly before the deadline: the proxy goes on without the picker
		t.Errorf("the open stream ended with %v", err)
	}
	<-done
	if n := countInFlight(a); n != 0 {
		t.Errorf("%d in flight after the stop", n)
	}
}

// TestPickerLedgerIsEmptyAfterAnyMessages, as a property: with any messages of a proxy in any order, and at any place where it
// leaves, the ledger, the queue and the body memory are empty afterwards.
func TestPickerLedgerIsEmptyAfterAnyMessages(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	w.kvBlocks = 8
	a := startAgent(t, withPicker, w)
	p := dialPicker(t, a)
	rapid.Check(t, func(rt *rapid.T) {
		var open []*pickerStream
		for range rapid.IntRange(1, 4).Draw(rt, "streams") {
			s := p.open(rapid.SampledFrom([]filterv3.ProcessingMode_BodySendMode{duplexMode, bufferedMode, headersMode}).Draw(rt, "mode"))
			open = append(open, s)
			go func() {
				for {
					if _, err := s.Recv(); err != nil {
						return
					}
				}
			}()
		}
		for range rapid.IntRange(0, 24).Draw(rt, "messages") {
			s := rapid.SampledFrom(open).Draw(rt, "stream")
			m, end := &extprocv3.ProcessingRequest{}, rapid.Bool().Draw(rt, "end")
			switch rapid.IntRange(0, 7).Draw(rt, "kind") {
			case 0, 1:
				m.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: s.mode, ResponseBodyMode: duplexMode}
				m.Request = &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: encodeHeaders(":method", "POST", ":path", "/v1/chat/completions", "content-type", "application/json")}
			case 2, 3:
				m.Request = &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(oneSlotChat), EndOfStream: end}}
			case 4:
				m.Request = &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: encodeHeaders(":status", rapid.SampledFrom([]string{"200", "503", "100"}).Draw(rt, "status"))}
			case 5:
				m.Request = &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte("data: {}\n\n"), EndOfStream: end}}
			case 6:
				m.Request = &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}
			case 7:
				m.Request = &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}
			}
			_ = s.Send(m) // the stream may have ended
		}
		for _, s := range open {
			if rapid.Bool().Draw(rt, "orderly") {
				_ = s.CloseSend()
			} else {
				s.cancel()
			}
		}
		testkit.Eventually(t, "ledger, queue and streams to be empty", func() bool {
			return countInFlight(a) == 0 && countWaiting(a) == 0 && a.HeldBodyBytes() == 0
		})
		for _, s := range open {
			s.cancel()
		}
	})
}
