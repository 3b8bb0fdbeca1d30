package regional_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/paths"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestOnlyInferencePathsPass: a tenant cannot reach any management path of an engine through a gateway and a real
// zone, by POST, upgrade or gRPC call, in any spelling of the path.
func TestOnlyInferencePathsPass(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	callee := newGRPCWorker(t)
	var mu sync.Mutex
	asked := map[string]int{}
	stand := startSimWorker(t)
	worker := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Attack") != "" {
			mu.Lock()
			asked[r.Method+" "+r.RequestURI]++
			mu.Unlock()
		}
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
	}))
	t.Cleanup(worker.Close)
	w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: worker.URL, GRPC: "http://" + callee.addr, Weight: 1})
	testkit.Eventually(t, "the zone serves", func() bool {
		resp, _ := w.getAnswer(g, clientCall{key: "key-acme", body: askBody})
		return resp.StatusCode == 200
	})
	conn := w.dialGRPC(g, insecure.NewCredentials())
	attack := http.Header{"X-Model": {"small"}, "X-Attack": {"1"}}
	written := append(paths.ManagementPaths(), "/v1/realtime/", "//v1/load_lora_adapter", "/v1//load_lora_adapter", "/V1/load_lora_adapter",
		"/v1/chat/completions/../../load_lora_adapter", "/v1/chat/completions/%2e%2e/%2e%2e/load_lora_adapter", "/v1/load%5Flora_adapter",
		"/v1%2Fload_lora_adapter", "/custom/run/..%2f..%2fsleep", "/custom/run/../../sleep", "/sleep/", "/sleep?level=1", "/v1/chat/completions/",
		"/v1/chat%2Fcompletions", "/v2/models/small/versions/..%2F..%2F..%2Frepository/infer", "/any.Service/%2e%2e", "/v2/models/small/load")
	for _, path := range written {
		for _, body := range []string{`{"model":"small"}`, ""} {
			if resp, text := w.getAnswer(g, clientCall{key: "key-acme", path: path, body: body, header: attack}); resp.StatusCode != 404 {
				t.Errorf("POST %s: %d %.100s", path, resp.StatusCode, text)
			}
		}
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		if path == "/v1/chat/completions/../../load_lora_adapter" || path == "/custom/run/../../sleep" {
			continue // sent as a raw request line below
		}
		if resp, _, _ := dialWebSocket(t, g, path+sep+"model=small", "key-acme"); resp.StatusCode != 404 {
			t.Errorf("an upgrade of %s: %d", path, resp.StatusCode)
		}
	}
	for _, path := range paths.ManagementPaths() {
		in, out := []byte{}, []byte(nil)
		if err := conn.Invoke(withAPIKey(t.Context(), "x-model", "small"), path, &in, &out); status.Code(err) != codes.Unimplemented {
			t.Errorf("a call of %s: %v", path, err)
		}
	}
	for _, path := range []string{"/metrics", "/v1/models", "/slots"} { // with any method
		if resp, c, in := dialWebSocket(t, g, path+"?model=small", "key-acme"); resp.StatusCode != 404 {
			t.Errorf("an upgrade of %s: %d", path, resp.StatusCode)
		} else if _ = c.Close(); true {
			_, _ = io.Copy(io.Discard, in)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) > 0 || len(callee.metadata) > 0 {
		t.Errorf("the worker was asked for %v, and %d calls", asked, len(callee.metadata))
	}
}

// TestRefusedUpgradeHidesWorkerAnswer: the body and headers of a refused upgrade are not forwarded, because they
// may be any page of the worker.
func TestRefusedUpgradeHidesWorkerAnswer(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	stand := startSimWorker(t)
	var code int
	worker := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/realtime" {
			rw.Header().Set("X-Secret", "a secret")
			rw.WriteHeader(code)
			_, _ = io.WriteString(rw, `{"error":{"code":"not_found","message":"a secret"}}`)
			return
		}
		http.Redirect(rw, r, stand+r.URL.RequestURI(), http.StatusTemporaryRedirect)
	}))
	t.Cleanup(worker.Close)
	w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: startUpgradeSplitter(t, worker.URL, stand), Weight: 1})
	testkit.Eventually(t, "the zone serves", func() bool {
		resp, _ := w.getAnswer(g, clientCall{key: "key-acme", body: askBody})
		return resp.StatusCode == 200
	})
	for from, want := range map[int]int{200: 502, 418: 418} {
		code = from
		resp, c, in := dialWebSocket(t, g, "/v1/realtime?model=small", "key-acme")
		body, _ := io.ReadAll(resp.Body)
		_ = c.Close()
		_, _ = io.Copy(io.Discard, in)
		if resp.StatusCode != want || strings.Contains(string(body), "secret") || resp.Header.Get("X-Secret") != "" {
			t.Errorf("%d became %d, %s, %v", from, resp.StatusCode, body, resp.Header)
		}
	}
}

// startUpgradeSplitter starts a worker that forwards upgrades to one server and all other requests to another.
func startUpgradeSplitter(t *testing.T, upgrades, rest string) string {
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		to := rest
		if r.URL.Path == "/v1/realtime" {
			to = upgrades
		}
		out, err := http.NewRequestWithContext(r.Context(), r.Method, to+r.URL.RequestURI(), r.Body)
		if err != nil {
			return
		}
		resp, err := http.DefaultTransport.RoundTrip(out)
		if err != nil {
			return
		}
		defer func() { _ = resp.Body.Close() }()
		for k, v := range resp.Header {
			rw.Header()[k] = v
		}
		rw.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(rw, resp.Body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestModelIsReadFromForm: no header is needed, an alias is replaced by its model, and two models are refused.
func TestModelIsReadFromForm(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	send := func(key, model string, h http.Header) (int, string) {
		var b bytes.Buffer
		f := multipart.NewWriter(&b)
		part, err := f.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="a.wav"`}})
		requireNoError(t, err)
		_, _ = part.Write(bytes.Repeat([]byte{0, 1, 2}, 1000))
		requireNoError(t, f.WriteField("model", model))
		requireNoError(t, f.Close())
		head := http.Header{"Content-Type": {f.FormDataContentType()}}
		for k, v := range h {
			head[k] = v
		}
		resp, text := w.getAnswer(g, clientCall{key: key, path: "/v1/audio/transcriptions", body: b.String(), header: head})
		return resp.StatusCode, text
	}
	if code, text := send("key-acme", "best", nil); code != 200 {
		t.Errorf("%d %s", code, text)
	} else if <-l.requests; !strings.Contains(string(<-l.bodies), "\r\n\r\nsmall\r\n--") {
		t.Error("the alias is not resolved in the form")
	}
	if code, text := send("key-narrow", "small", http.Header{"X-Model": {"large"}}); code != 400 {
		t.Errorf("two models: %d %s", code, text)
	}
	if code, text := send("key-narrow", "small", nil); code != 403 {
		t.Errorf("a model that is not allowed: %d %s", code, text)
	}
	if code, text := send("key-acme", "", nil); code != 400 {
		t.Errorf("no model: %d %s", code, text)
	}
}

// TestEveryCallMessageIsAuthorized: a later message that names a model the tenant may not use ends the call.
func TestEveryCallMessageIsAuthorized(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	callee := newGRPCWorker(t)
	w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: startSimWorker(t), GRPC: "http://" + callee.addr, Weight: 1})
	conn := w.dialGRPC(g, insecure.NewCredentials())
	testkit.Eventually(t, "the zone serves", func() bool {
		resp, _ := w.getAnswer(g, clientCall{key: "key-acme", body: askBody})
		return resp.StatusCode == 200
	})
	const method = "/inference.GRPCInferenceService/ModelStreamInfer"
	open := func(key string) grpc.ClientStream {
		ctx := withAPIKey(t.Context())
		if key != "" {
			ctx = withKey(t.Context(), key)
		}
		s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
		requireNoError(t, err)
		return s
	}
	exchange := func(s grpc.ClientStream, model string) error {
		in, out := encodeInferRequest(model), []byte(nil)
		if err := s.SendMsg(&in); err != nil {
			return err
		}
		if err := s.RecvMsg(&out); err != nil {
			return err
		}
		if !bytes.HasSuffix(out, encodeInferRequest("small")) && !bytes.HasSuffix(out, in) {
			t.Errorf("%.60q came back", out)
		}
		return nil
	}
	for name, tc := range map[string]struct {
		models []string
		code   codes.Code
	}{
		"the same model":        {[]string{"small", "small", "small"}, codes.OK},
		"by an alias first":     {[]string{"best", "small"}, codes.OK},
		"one that is forbidden": {[]string{"small", "small", "large"}, codes.PermissionDenied},
		"one that is unknown":   {[]string{"small", "other"}, codes.NotFound},
		"an alias later":        {[]string{"small", "best"}, codes.NotFound},
	} {
		s := open("key-some")
		var err error
		for i, m := range tc.models {
			if err = exchange(s, m); err != nil && i < len(tc.models)-1 {
				t.Errorf("%s: message %d: %v", name, i, err)
			}
		}
		if status.Code(err) != tc.code {
			t.Errorf("%s ends with %v", name, err)
		}
		_ = s.CloseSend()
	}
	s := open("") // no service list: no check
	for _, m := range []string{"small", "large", "whatever"} {
		requireNoError(t, exchange(s, m))
	}
}
