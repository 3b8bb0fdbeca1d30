package engine

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// fakeWorker is a server with some of an engine's pages; all others are 404. A page "POST /x" answers a POST.
type fakeWorker struct {
	pages  map[string]string
	header string // Server

	mu        sync.Mutex
	requested []string
	posted    []string // bodies of POSTs
}

func (w *fakeWorker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	key := r.URL.RequestURI()
	if r.Method == http.MethodPost {
		key = "POST " + key
	}
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	w.requested = append(w.requested, key)
	if r.Method == http.MethodPost {
		w.posted = append(w.posted, key+" "+string(body))
	}
	page, ok := w.pages[key]
	w.mu.Unlock()
	rw.Header().Set("Server", w.header)
	switch status, text, coded := strings.Cut(page, "!"); {
	case !ok:
		http.NotFound(rw, r)
	case coded && len(status) == 3:
		code := map[string]int{"400": 400, "401": 401, "404": 404, "501": 501, "503": 503}[status]
		rw.WriteHeader(code)
		_, _ = io.WriteString(rw, text)
	default:
		_, _ = io.WriteString(rw, page)
	}
}

func (w *fakeWorker) setPage(key, page string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages[key] = page
}

func (w *fakeWorker) takeRequested() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.requested
	w.requested = nil
	return out
}

// serveFakeWorker starts w and returns an engine that reads it.
func serveFakeWorker(t *testing.T, name string, w *fakeWorker) Engine {
	t.Helper()
	s := httptest.NewServer(w)
	t.Cleanup(s.Close)
	metrics := ""
	if name == "triton" || w.pages["/metrics"] != "" && strings.Contains(w.pages["/metrics"], "nv_") {
		metrics = s.URL + "/metrics"
	}
	e, err := New(name, Config{BaseURL: s.URL + "/", MetricsURL: metrics, Client: NewClient(s.Client(), 4)})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// newFakeWorkers returns one worker of each engine, in a healthy state.
func newFakeWorkers(t testing.TB) map[string]*fakeWorker {
	g := func(name string) string { return string(readGolden(t, name)) }
	return map[string]*fakeWorker{
		"vllm":   {pages: map[string]string{"/health": " ", "/v1/models": g("vllm_models.json"), "/metrics": g("vllm_lora.txt"), "/version": `{"version":"0.12.0"}`}},
		"sglang": {pages: map[string]string{"/health": " ", "/v1/models": g("sglang_models.json"), "/metrics": g("sglang.txt")}},
		"trtllm": {pages: map[string]string{"/health": " ", "/v1/models": g("trtllm_models.json"), "/metrics": "[]", "/prometheus/metrics": g("trtllm.txt")}},
		"triton": {pages: map[string]string{"/v2/health/live": " ", "/v2": `{"name":"triton","version":"2.60.0","extensions":["model_repository"]}`, "POST /v2/repository/index": g("triton_index.json"), "/metrics": g("triton.txt")}},
		"tgi":    {pages: map[string]string{"/health": " ", "/v1/models": g("tgi_models.json"), "/info": g("tgi_info.json"), "/metrics": g("tgi.txt")}},
		"llamacpp": {header: "llama.cpp", pages: map[string]string{
			"/health": `{"status":"ok"}`, "/v1/models": g("llamacpp_models.json"), "/props": g("llamacpp_props.json"), "/slots": g("llamacpp_slots.json"), "/metrics": g("llamacpp.txt"),
		}},
		"ollama": {pages: map[string]string{"/api/version": `{"version":"0.30.2"}`, "/api/tags": g("ollama_tags.json"), "/api/ps": g("ollama_ps.json"), "/v1/models": g("ollama_models.json")}},
		"openai": {pages: map[string]string{"/v1/models": `{"data":[{"id":"m","owned_by":"unknown"}]}`}},
	}
}

func TestEveryEngineIsReadByNameAndDetected(t *testing.T) {
	models := map[string][]WorkerModel{
		"vllm":     {{ID: "llama-3.1-8b", MaxContext: 131072}, {ID: "sql", Parent: "llama-3.1-8b"}},
		"sglang":   {{ID: "qwen3-32b", MaxContext: 40960}, {ID: "qwen3-32b:sql", Parent: "qwen3-32b"}},
		"trtllm":   {{ID: "llama-3.1-70b"}},
		"triton":   {{ID: "tensorrt_llm"}, {ID: "small"}, {ID: "spare", State: ModelUnloaded}, {ID: "broken", State: ModelUnloaded}},
		"tgi":      {{ID: "mistralai/Mistral-7B-Instruct-v0.3", MaxContext: 32768}},
		"llamacpp": {{ID: "qwen3-8b", MaxContext: 8192}},
		"ollama":   {{ID: "llama3.2:latest", MaxContext: 8192}, {ID: "llama3.2", MaxContext: 8192}, {ID: "qwen3:32b", State: ModelCold}},
		"openai":   {{ID: "m"}},
	}
	running := map[string]int64{"vllm": 4, "sglang": 17, "trtllm": 9, "triton": 7, "tgi": 8, "llamacpp": 3}
	for name, w := range newFakeWorkers(t) {
		for _, by := range []string{name, NameAuto} {
			e := serveFakeWorker(t, by, w)
			ctx := t.Context()
			if err := e.CheckHealth(ctx); err != nil {
				t.Errorf("%s by %s: health: %v", name, by, err)
			}
			if e.Name() != name {
				t.Errorf("%s by %s was taken for %s", name, by, e.Name())
			}
			got, err := e.ListModels(ctx)
			if diff := cmp.Diff(models[name], got); err != nil || diff != "" {
				t.Errorf("%s by %s: models: %v %s", name, by, err, diff)
			}
			r, err := e.ReadMetrics(ctx, Reading{Running: 99})
			want, tells := running[name]
			if !tells {
				want = 99
			}
			if err != nil || r.Running != want || r.ReadAt.IsZero() || r.LoadReadAt.IsZero() == tells {
				t.Errorf("%s by %s: metrics: %+v, %v", name, by, r, err)
			}
		}
	}
	if len(models)+1 != len(DialectNames()) {
		t.Errorf("%d engines of %d are tested", len(models), len(DialectNames())-1)
	}
}

func TestDetectionIsCheapAndHappensOnce(t *testing.T) {
	for name, w := range newFakeWorkers(t) {
		e := serveFakeWorker(t, NameAuto, w)
		w.takeRequested()
		if err := e.CheckHealth(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(w.takeRequested()); n > 8 {
			t.Errorf("%s took %d questions", name, n)
		}
		for range 3 {
			_ = e.CheckHealth(t.Context())
		}
		if n := len(w.takeRequested()); n > 6 {
			t.Errorf("%s is asked who it is again: %d questions for three probes", name, n)
		}
	}
}

func TestChangedEngineAtAddressIsDetected(t *testing.T) {
	w := newFakeWorkers(t)["vllm"]
	e := serveFakeWorker(t, NameAuto, w)
	if err := e.CheckHealth(t.Context()); err != nil || e.Name() != "vllm" {
		t.Fatal(e.Name(), err)
	}
	w.setPage("/health", "503!")
	if e.CheckHealth(t.Context()) == nil {
		t.Fatal("an unhealthy worker is healthy")
	}
	next := newFakeWorkers(t)["sglang"]
	for k, v := range next.pages {
		w.setPage(k, v)
	}
	if err := e.CheckHealth(t.Context()); err != nil || e.Name() != "sglang" {
		t.Errorf("%s, %v", e.Name(), err)
	}
}

func TestNameDoesNotWaitForDetection(t *testing.T) {
	hold := make(chan struct{})
	asked := make(chan struct{}, 8)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-hold
	}))
	defer s.Close()
	defer close(hold)
	e, err := New(NameAuto, Config{BaseURL: s.URL, Client: NewClient(s.Client(), 4)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.CheckHealth(ctx) }()
	<-asked
	if n := e.Name(); n != NameAuto {
		t.Errorf("while it is asked it is called %s", n)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that leaves gets %v", err)
	}
}

func TestLoadingWorkerIsNotDetectedEarly(t *testing.T) {
	w := &fakeWorker{header: "llama.cpp", pages: map[string]string{"/health": "503!", "/v1/models": "503!", "/props": "503!", "/metrics": "503!"}}
	e := serveFakeWorker(t, NameAuto, w)
	if err := e.CheckHealth(t.Context()); !errors.Is(err, ErrUndetected) || e.Name() != NameAuto {
		t.Errorf("%s, %v", e.Name(), err)
	}
	if _, ok := AsCapability[ModelLoader](e); ok {
		t.Error("an undetected worker can load")
	}
	for k, v := range newFakeWorkers(t)["llamacpp"].pages {
		w.setPage(k, v)
	}
	if err := e.CheckHealth(t.Context()); err != nil || e.Name() != "llamacpp" {
		t.Errorf("%s, %v", e.Name(), err)
	}
	gone, err := New("", Config{BaseURL: "http://127.0.0.1:1", Client: NewClient(http.DefaultClient, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.CheckHealth(t.Context()); err == nil || errors.Is(err, ErrUndetected) {
		t.Errorf("an absent worker says %v", err)
	}
}

func TestLlamaCPPRouterModeAndDisabledPages(t *testing.T) {
	w := newFakeWorkers(t)["llamacpp"]
	delete(w.pages, "/metrics")
	e := serveFakeWorker(t, "llamacpp", w)
	if _, err := e.ListModels(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r, err := e.ReadMetrics(t.Context(), Reading{})
		if err != nil || r.Running != 3 || r.Slots != 4 || r.KVTotal != 4*8192 || r.KVUsed() != -1 {
			t.Errorf("without metrics: %+v, %v", r, err)
		}
	}
	tried := 0
	for _, q := range w.takeRequested() {
		if q == "/metrics" {
			tried++
		}
	}
	if tried != 1 {
		t.Errorf("a page that is off was asked for %d times", tried)
	}
	w.setPage("/slots", "501!")
	if r, err := e.ReadMetrics(t.Context(), Reading{Running: 2}); err != nil || r.Running != 2 || !r.LoadReadAt.IsZero() {
		t.Errorf("with nothing: %+v, %v", r, err)
	}
	w.setPage("/v1/models", string(readGolden(t, "llamacpp_router.json")))
	got, err := e.ListModels(t.Context())
	if diff := cmp.Diff([]WorkerModel{{ID: "qwen3-8b"}, {ID: "gemma-3-4b", State: ModelCold}, {ID: "phi-4", State: ModelCold}}, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

func TestBusySGLangIsHealthy(t *testing.T) {
	w := newFakeWorkers(t)["sglang"]
	var slow atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if slow.Load() && r.URL.Path == "/health" {
			<-r.Context().Done()
			return
		}
		w.ServeHTTP(rw, r)
	}))
	defer s.Close()
	e, err := New("sglang", Config{BaseURL: s.URL, Client: NewClient(s.Client(), 4)})
	if err != nil {
		t.Fatal(err)
	}
	slow.Store(true)
	if err := e.CheckHealth(t.Context()); err != nil {
		t.Errorf("a worker whose health page waits behind a prefill is unhealthy: %v", err)
	}
	w.setPage("/v1/models", "503!")
	if e.CheckHealth(t.Context()) == nil {
		t.Error("one that answers nothing is well")
	}
}

func TestLoadAndUnload(t *testing.T) {
	for _, c := range []struct {
		engine       string
		load, unload string // the commands sent, with the path
		already      string // a refusal because it is already in that state
	}{
		{"vllm", `POST /v1/load_lora_adapter {"lora_name":"sql","lora_path":"/adapters/sql"}`, `POST /v1/unload_lora_adapter {"lora_name":"sql"}`, "The lora adapter 'sql' has already been loaded."},
		{"sglang", `POST /load_lora_adapter {"lora_name":"sql","lora_path":"/adapters/sql"}`, `POST /unload_lora_adapter {"lora_name":"sql"}`, "LoRA adapter sql is already loaded"},
		{"triton", `POST /v2/repository/models/sql/load {}`, `POST /v2/repository/models/sql/unload {}`, ""},
		{"llamacpp", `POST /models/load {"model":"sql"}`, `POST /models/unload {"model":"sql"}`, "model is already running"},
		{"ollama", `POST /api/generate {"model":"sql","stream":false}`, `POST /api/generate {"keep_alive":0,"model":"sql","stream":false}`, ""},
	} {
		w := &fakeWorker{pages: map[string]string{}}
		for _, command := range []string{c.load, c.unload} {
			w.pages[command[:strings.Index(command, " {")]] = "{}"
		}
		l, ok := AsCapability[ModelLoader](serveFakeWorker(t, c.engine, w))
		if !ok {
			t.Errorf("%s does not load", c.engine)
			continue
		}
		ctx := t.Context()
		if err := errors.Join(l.LoadModel(ctx, ModelSource{ID: "sql", Path: "/adapters/sql"}), l.UnloadModel(ctx, "sql")); err != nil {
			t.Errorf("%s: %v", c.engine, err)
		}
		if diff := cmp.Diff([]string{c.load, c.unload}, w.posted); diff != "" {
			t.Errorf("%s: %s", c.engine, diff)
		}
		path := c.load[:strings.Index(c.load, " {")]
		w.setPage(path, "400!no such file")
		if l.LoadModel(ctx, ModelSource{ID: "sql"}) == nil {
			t.Errorf("%s: a refusal is taken for success", c.engine)
		}
		w.setPage(path, "400!"+c.already)
		if err := l.LoadModel(ctx, ModelSource{ID: "sql"}); c.already != "" && err != nil {
			t.Errorf("%s: loading twice: %v", c.engine, err)
		}
	}
	for name, paths := range map[string][]string{
		"vllm": {"POST /sleep?level=1", "POST /wake_up"}, "sglang": {"POST /release_memory_occupation", "POST /resume_memory_occupation"},
	} {
		w := &fakeWorker{pages: map[string]string{paths[0]: "{}", paths[1]: "{}"}}
		s, ok := AsCapability[SleepController](serveFakeWorker(t, name, w))
		if !ok {
			t.Fatalf("%s does not sleep", name)
		}
		if err := errors.Join(s.ReleaseMemory(t.Context()), s.ReclaimMemory(t.Context())); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPageSizeIsBounded(t *testing.T) {
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line := []byte("vllm:num_requests_running{model_name=\"" + strings.Repeat("x", 1000) + "\"} 1\n")
		for r.Context().Err() == nil {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	drip := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("vllm:"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer drip.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for _, name := range DialectNames() {
		e, err := New(name, Config{BaseURL: endless.URL, MetricsURL: endless.URL + "/metrics", Client: NewClient(endless.Client(), 4)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.ListModels(t.Context()); !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrUndetected) && err == nil {
			t.Errorf("%s: endless models say %v", name, err)
		}
	}
	v, _ := New("vllm", Config{BaseURL: endless.URL, Client: NewClient(endless.Client(), 4)})
	if r, err := v.ReadMetrics(t.Context(), knownReading); !errors.Is(err, ErrTooLarge) || !cmp.Equal(r, knownReading) {
		t.Errorf("endless metrics say %+v, %v", r, err)
	}
	v, _ = New("vllm", Config{BaseURL: drip.URL, Client: NewClient(drip.Client(), 4)})
	if r, err := v.ReadMetrics(ctx, knownReading); !errors.Is(err, context.DeadlineExceeded) || !cmp.Equal(r, knownReading) {
		t.Errorf("dripping metrics say %+v, %v", r, err)
	}
}

func TestMalformedPageGivesNoReading(t *testing.T) {
	for _, page := range []string{"", "<html>it works</html>", `{"a":1}`, "process_cpu_seconds_total 4\n", "\x00\xff\xfe"} {
		for _, name := range []string{"vllm", "sglang", "trtllm", "triton", "tgi", "llamacpp"} {
			w := &fakeWorker{pages: map[string]string{"/metrics": page, "/prometheus/metrics": page}}
			if r, err := serveFakeWorker(t, name, w).ReadMetrics(t.Context(), knownReading); !errors.Is(err, ErrUnknownPage) || !cmp.Equal(r, knownReading) {
				t.Errorf("%s took %q for metrics: %+v, %v", name, page, r, err)
			}
		}
	}
}

func TestConcurrentRequestsAreBounded(t *testing.T) {
	var under, most atomic.Int64
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := under.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-release
		under.Add(-1)
	}))
	defer s.Close()
	c := NewClient(s.Client(), 3)
	var wg sync.WaitGroup
	for range 12 {
		e, _ := New("vllm", Config{BaseURL: s.URL, Client: c})
		wg.Go(func() { _ = e.CheckHealth(context.Background()) })
	}
	testkit.Eventually(t, "three requests are under way", func() bool { return under.Load() >= 3 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e, _ := New("vllm", Config{BaseURL: s.URL, Client: c})
	if err := e.CheckHealth(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left goes on waiting: %v", err)
	}
	close(release)
	wg.Wait()
	if most.Load() > 3 {
		t.Errorf("%d at once", most.Load())
	}
}

func TestInvalidWorkerURLs(t *testing.T) {
	c := NewClient(http.DefaultClient, 1)
	for _, bad := range []string{"", "worker:80", "ftp://x", "http://"} {
		if _, err := New("vllm", Config{BaseURL: bad, Client: c}); err == nil {
			t.Errorf("%q was taken for a worker's URL", bad)
		}
	}
	if _, err := New("vllm", Config{BaseURL: "http://w", MetricsURL: "nowhere", Client: c}); err == nil {
		t.Error("a bad metrics page was taken")
	}
	if _, err := New("vllm2", Config{BaseURL: "http://w", Client: c}); err == nil || !strings.Contains(err.Error(), "sglang") || IsKnownDialect("vllm2") || !IsKnownDialect("") || !IsKnownDialect("tgi") {
		t.Errorf("an unknown engine says %v", err)
	}
}

func TestConfigAcceptsEveryDialect(t *testing.T) {
	if diff := cmp.Diff(config.EngineNames(), DialectNames()); diff != "" {
		t.Error(diff)
	}
}

func TestParseProps(t *testing.T) {
	slots, size, err := parseProps(readGolden(t, "llamacpp_props.json"))
	if slots != 4 || size != 8192 || err != nil {
		t.Error(slots, size, err)
	}
	raw, _ := json.Marshal(map[string]any{"total_slots": -3})
	if slots, size, err := parseProps(raw); slots != 0 || size != 0 || err != nil {
		t.Error(slots, size, err)
	}
}

// TestDescribeErrorNamesWhatFailed: in one bounded line, with the key to change, and without what the worker sent.
func TestDescribeErrorNamesWhatFailed(t *testing.T) {
	call := func(err error) error { return &CallError{Method: "GET", Path: "/v1/models", Err: err} }
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, c := range []struct {
		err  error
		a    AccessMode
		want string
	}{
		{nil, AccessMode{}, ""},
		{call(dial(os.NewSyscallError("connect", syscall.ECONNREFUSED))), AccessMode{}, "GET /v1/models: connection refused"},
		{call(dial(&net.DNSError{Err: "no such host", Name: "gpu7", IsNotFound: true})), AccessMode{}, "GET /v1/models: no such host gpu7"},
		{call(dial(&net.DNSError{Err: "server misbehaving", Name: "gpu7"})), AccessMode{}, "GET /v1/models: cannot resolve gpu7"},
		{call(dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH))), AccessMode{}, "GET /v1/models: no route to host"},
		{call(context.DeadlineExceeded), AccessMode{}, "GET /v1/models: no answer in time"},
		{call(x509.HostnameError{Host: "gpu7", Certificate: &x509.Certificate{}}), AccessMode{TLS: true}, "GET /v1/models: the worker's certificate is not valid for gpu7 (set server_name)"},
		{call(x509.CertificateInvalidError{Reason: x509.Expired}), AccessMode{TLS: true}, "GET /v1/models: the worker's certificate has expired or is not yet valid"},
		{call(errors.New("remote error: tls: certificate required")), AccessMode{TLS: true}, "GET /v1/models: the worker requires a client certificate (set tls.cert and tls.key)"},
		{call(errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "\x15\x03\x01\x00\x02\x02"`)), AccessMode{}, "GET /v1/models: the answer is not HTTP (the worker uses TLS: write https:// in url)"},
		{call(io.EOF), AccessMode{TLS: true}, "GET /v1/models: connection closed before an answer (if the worker does not use TLS, write http:// in url)"},
		{&StatusError{Method: "POST", Path: "/x", Status: 401, Body: "key sk-1234 is wrong"}, AccessMode{HasKey: true}, "POST /x: status 401 Unauthorized (the worker rejects the configured key: check api_key_file)"},
		{fmt.Errorf("%w: %w", ErrUndetected, &StatusError{Method: "GET", Path: "/v1/models", Status: 403}), AccessMode{}, "GET /v1/models: status 403 Forbidden (the worker requires a key: set api_key_file)"},
		{&StatusError{Method: "GET", Path: "/v1/models", Status: 400, Body: "The plain HTTP request was sent to HTTPS port"}, AccessMode{}, "GET /v1/models: status 400 Bad Request (the worker uses TLS: write https:// in url)"},
		{&StatusError{Method: "GET", Path: "/v1/models", Status: 599, Body: "HTTPS"}, AccessMode{}, "GET /v1/models: status 599"},
		{&url.Error{Op: "parse", URL: "http://w/?key=hunter2", Err: errors.New("invalid")}, AccessMode{}, "invalid"},
		{ErrUndetected, AccessMode{}, ErrUndetected.Error()},
	} {
		if got := DescribeError(c.err, c.a); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
	long := DescribeError(call(errors.New(strings.Repeat("x\n\x1b[31m", 200))), AccessMode{})
	if len(long) > maxCauseBytes || strings.ContainsAny(long, "\n\x1b") {
		t.Errorf("a cause of %d bytes: %q", len(long), long)
	}
}
