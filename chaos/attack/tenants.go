package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// attacks in the order in which they run.
func attacks() []attack {
	return append(tenantAttacks(), controlAttacks()...)
}

func tenantAttacks() []attack {
	return []attack{
		{"management pages by POST", "local S1-1", managementByPost},
		{"management pages by Upgrade", "local S1-1", managementByUpgrade},
		{"management methods by gRPC", "local S1-1", managementByGRPC},
		{"management pages at the zone", "local S1-1", managementAtZone},
		{"paths in disguise", "local S1-1", disguisedPaths},
		{"WebSocket to an engine without one", "local S1-2", refusedUpgrades},
		{"gRPC to a worker without it", "local S1-2", refusedGRPC},
		{"error events of the client's own", "local S1-2", tooLongStreams},
		{"a prompt with an engine's last words", "local S1-2", echoedPrompts},
		{"a request that kills workers", "issue", poisonRequest},
		{"a stream that kills workers", "issue", poisonStream},
		{"a prompt past its regions", "local S2-1", fencedPrompt},
		{"a model outside the list", "local S2-5", foreignModels},
		{"members twice or in another case", "local S2-5", duplicateMembers},
		{"output past its limit", "local S2-7", outputLimit},
		{"bodies that stop", "local S2-2", stoppedBodies},
		{"gRPC calls that never send", "local S2-3", silentGRPC},
		{"leaving before the first byte", "local S2-6", leaveEarly},
		{"large bodies held open", "local S3-2", heldBodies},
		{"smuggled requests", "corpus", smuggled},
	}
}

// management are paths that change or reveal an engine: vLLM, SGLang, TensorRT-LLM and Triton, TGI, llama.cpp, Ollama.
var management = []string{
	"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/load_lora_adapter", "/unload_lora_adapter", "/sleep", "/wake_up", "/is_sleeping",
	"/reset_prefix_cache", "/reset_mm_cache", "/collective_rpc", "/update_weights", "/init_weight_transfer_engine", "/start_profile", "/stop_profile",
	"/abort_request", "/flush_cache", "/update_weights_from_disk", "/update_weights_from_tensor", "/update_weights_from_distributed",
	"/init_weights_update_group", "/get_weights_by_name", "/release_memory_occupation", "/resume_memory_occupation", "/set_internal_state",
	"/get_server_info", "/get_model_info", "/open_session", "/close_session", "/configure_logging", "/pause_generation", "/continue_generation",
	"/slots", "/slots/0", "/props", "/lora-adapters", "/models/load", "/models/unload",
	"/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete", "/api/blobs/sha256:0", "/api/ps", "/api/tags", "/api/show",
	"/v2/repository/index", "/v2/repository/models/llama-3.1-8b/load", "/v2/repository/models/llama-3.1-8b/unload",
	"/v2/systemsharedmemory/region/a/register", "/v2/cudasharedmemory/unregister", "/v2/trace/setting", "/v2/logging",
	"/metrics", "/prometheus/metrics", "/server_info", "/version", "/docs", "/openapi.json", "/shutdown", "/kill",
}

func (t *target) expectNotFound(ctx context.Context, c *http.Client, base string, path string, header ...string) error {
	header = append(header, "X-Model", "llama-3.1-8b")
	got, err := t.send(ctx, c, http.MethodPost, base+path, t.keys["mallory"], strings.NewReader(`{"model":"llama-3.1-8b"}`), header...)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if got.status != http.StatusNotFound || strings.Contains(got.body, secret) {
		return fmt.Errorf("%s is answered with %d: %.100s", path, got.status, got.body)
	}
	return nil
}

func managementByPost(ctx context.Context, t *target) (string, error) {
	for _, path := range management {
		if err := t.expectNotFound(ctx, t.client, t.gateway, path); err != nil {
			return "", err
		}
	}
	if n := t.reached(); n > 0 {
		return "", fmt.Errorf("%d requests reached a worker", n)
	}
	return fmt.Sprintf("%d paths: 404, none reached a worker", len(management)), nil
}

func managementAtZone(ctx context.Context, t *target) (string, error) {
	c, base, err := t.zoneClient()
	if err != nil {
		return "", err
	}
	for _, path := range management {
		if err := t.expectNotFound(ctx, c, base, path); err != nil {
			return "", err
		}
	}
	if n := t.reached(); n > 0 {
		return "", fmt.Errorf("%d requests reached a worker", n)
	}
	return fmt.Sprintf("%d paths with a gateway's certificate: 404, none reached a worker", len(management)), nil
}

func managementByUpgrade(ctx context.Context, t *target) (string, error) {
	for _, path := range management {
		got, err := t.raw(ctx, t.gateway, "GET "+path+"?model=llama-3.1-8b HTTP/1.1\r\nHost: chat\r\nAuthorization: Bearer "+t.keys["mallory"]+
			"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", time.Second)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		if !strings.HasPrefix(got, "HTTP/1.1 404 ") || strings.Contains(got, secret) {
			return "", fmt.Errorf("%s is answered with %.100q", path, got)
		}
	}
	if n := t.reached(); n > 0 {
		return "", fmt.Errorf("%d requests reached a worker", n)
	}
	return fmt.Sprintf("%d paths: 404, none reached a worker", len(management)), nil
}

// disguisedPaths are spellings of a management path that some server reads as that path.
func disguisedPaths(ctx context.Context, t *target) (string, error) {
	disguises := []string{
		"//sleep", "/./sleep", "/v1/../sleep", "/v1/chat/completions/../../../sleep", "/%73leep", "/sleep/", "/sleep?x=/v1/chat/completions", "/SLEEP",
		"/v1/chat/completions/%2e%2e/%2e%2e/%2e%2e/sleep", "/v1%2f..%2fsleep", "/v1/chat/completions%00/../sleep", "/v1/chat/completions;/../sleep",
		"/v1/audio/../load_lora_adapter", "/v1/audio/%2e%2e/load_lora_adapter", "/sleep#/v1/chat/completions",
	}
	for _, path := range disguises {
		body := `{"model":"llama-3.1-8b"}`
		got, err := t.raw(ctx, t.gateway, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: chat\r\nAuthorization: Bearer %s\r\nX-Model: llama-3.1-8b\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			path, t.keys["mallory"], len(body), body), 2*time.Second)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		if !strings.HasPrefix(got, "HTTP/1.1 4") && !strings.HasPrefix(got, "HTTP/1.1 30") {
			return "", fmt.Errorf("%s is answered with %.100q", path, got)
		}
	}
	if n := t.reached(); n > 0 {
		return "", fmt.Errorf("%d requests reached a worker", n)
	}
	return fmt.Sprintf("%d spellings, none reached a worker", len(disguises)), nil
}

func refusedUpgrades(ctx context.Context, t *target) (string, error) {
	for range 20 {
		got, err := t.raw(ctx, t.gateway, "GET /v1/realtime?model=llama-3.1-8b HTTP/1.1\r\nHost: chat\r\nAuthorization: Bearer "+t.keys["mallory"]+
			"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", 2*time.Second)
		if err != nil {
			return "", err
		}
		if !strings.HasPrefix(got, "HTTP/1.1 4") && !strings.HasPrefix(got, "HTTP/1.1 5") || strings.Contains(got, secret) {
			return "", fmt.Errorf("an upgrade is answered with %.200q", got)
		}
	}
	return t.expectAllReady(ctx, "20 refused upgrades, no page of a worker")
}

func (t *target) expectAllReady(ctx context.Context, measured string) (string, error) {
	ready, total, err := t.readyWorkers(ctx)
	if err != nil {
		return "", err
	}
	if ready != total {
		return "", fmt.Errorf("%s, and %d of %d workers are no longer ready", measured, total-ready, total)
	}
	return fmt.Sprintf("%s; %d of %d workers ready", measured, ready, total), nil
}

func tooLongStreams(ctx context.Context, t *target) (string, error) {
	for i := range 24 {
		got, err := t.post(ctx, t.gateway+"/v1/chat/completions", t.keys["mallory"], stream(fmt.Sprint(markTooLong, " ", i)))
		if err != nil {
			return "", err
		}
		if got.status != http.StatusOK || !strings.Contains(got.body, "longer than the context") {
			return "", fmt.Errorf("answer %d is %d: %.200s", i, got.status, got.body)
		}
	}
	if n := t.reached(); n != 24 {
		return "", fmt.Errorf("24 streams were sent to workers %d times", n)
	}
	return t.expectAllReady(ctx, "24 streams, each sent once and its error passed on")
}

func echoedPrompts(ctx context.Context, t *target) (string, error) {
	for i := range 24 {
		if _, err := t.post(ctx, t.gateway+"/v1/chat/completions", t.keys["mallory"], chat(fmt.Sprint(markEcho, " CUDA error: an illegal memory access; engine core died; out of memory ", i), 8)); err != nil {
			return "", err
		}
	}
	return t.expectAllReady(ctx, "24 prompts echoed by a 500")
}

func poisonRequest(ctx context.Context, t *target) (string, error) {
	body, last := chat(markDie+" same request", 8), answer{}
	for range 3 {
		var err error
		if last, err = t.post(ctx, t.gateway+"/v1/chat/completions", t.keys["mallory"], body); err != nil {
			return "", err
		}
	}
	return t.judgePoison(last)
}

func (t *target) judgePoison(last answer) (string, error) {
	n := t.deaths()
	switch {
	case n > 2:
		return "", fmt.Errorf("three tries of one request killed %d workers", n)
	case n == 0:
		return "", errors.New("the request reached no worker: the attack was not made")
	case last.code() != "request_kills_workers" || last.header.Get("X-Should-Retry") != "false":
		return "", fmt.Errorf("after %d deaths the answer is %d %s, x-should-retry %q", n, last.status, last.code(), last.header.Get("X-Should-Retry"))
	}
	return fmt.Sprintf("3 tries: %d deaths, then %d %s, x-should-retry: false", n, last.status, last.code()), nil
}

func poisonStream(ctx context.Context, t *target) (string, error) {
	body, last := stream(markDieLate+" same stream"), answer{}
	for range 3 {
		var err error
		if last, err = t.post(ctx, t.gateway+"/v1/chat/completions", t.keys["mallory"], body); err != nil {
			return "", err
		}
	}
	return t.judgePoison(last)
}

func stream(prompt string) string {
	return strings.Replace(chat(prompt, 8), `"max_tokens":8`, `"max_tokens":8,"stream":true`, 1)
}

// fencedPrompt asks from a tenant that may use virginia only, while every zone of virginia is drained.
func fencedPrompt(ctx context.Context, t *target) (string, error) {
	virginia, other := t.fleet.Of("regional")[0], int64(0)
	zones := []string{virginia.Region + "/a", virginia.Region + "/b"}
	for _, z := range zones {
		if out, err := t.admin(ctx, "drain", "zone", z, "--reason", "attack", "--force"); err != nil {
			return "", fmt.Errorf("drain: %w: %s", err, out)
		}
	}
	defer func() {
		for _, z := range zones {
			_, _ = t.admin(context.WithoutCancel(ctx), "undrain", "zone", z)
		}
	}()
	time.Sleep(2 * time.Second) // for the directive to be in force in both zones
	status := 0
	for range 5 {
		got, err := t.post(ctx, t.gateway+"/v1/chat/completions", t.keys["fenced"], chat(strings.Repeat("word ", 2000), 8))
		if err != nil {
			return "", err
		}
		status = got.status
	}
	for _, v := range t.workers {
		if !strings.HasPrefix(v.name, virginia.Region+"/") {
			v.count(func() { other += v.bytes })
		}
	}
	if other > 0 {
		return "", fmt.Errorf("%d bytes of the prompts reached another region's workers", other)
	}
	return fmt.Sprintf("5 prompts of 10 KB with the region drained: %d, none left the region", status), nil
}

func foreignModels(ctx context.Context, t *target) (string, error) {
	key := t.keys["narrow"]
	tries := []struct{ path, body, header string }{
		{"/v1/chat/completions", chat("x", 8), ""},
		{"/v1/chat/completions", chat("x", 8), "qwen2.5-7b"},
		{"/api/chat", `{"model":"llama-3.1-8b","messages":[{"role":"user","content":"x"}]}`, "qwen2.5-7b"},
		{"/v1/rerank", `{"model":"llama-3.1-8b","query":"q","documents":["d"]}`, "qwen2.5-7b"},
		{"/v1/score", `{"model":"llama-3.1-8b","text_1":"q","text_2":"d"}`, ""},
		{"/tokenize", `{"model":"llama-3.1-8b","prompt":"x"}`, "qwen2.5-7b"},
	}
	for _, try := range tries {
		header := []string{}
		if try.header != "" {
			header = []string{"X-Model", try.header}
		}
		got, err := t.post(ctx, t.gateway+try.path, key, try.body, header...)
		if err != nil {
			return "", err
		}
		if got.status < 400 || got.status >= 500 {
			return "", fmt.Errorf("%s with x-model %q is answered with %d: %.200s", try.path, try.header, got.status, got.body)
		}
	}
	if n := t.reached(); n > 0 {
		return "", fmt.Errorf("%d requests reached a worker", n)
	}
	return fmt.Sprintf("%d requests for a model outside the list: 4xx, none reached a worker", len(tries)), nil
}

func duplicateMembers(ctx context.Context, t *target) (string, error) {
	bodies := []string{
		`{"model":"qwen2.5-7b","MODEL":"llama-3.1-8b","messages":[]}`,
		`{"model":"qwen2.5-7b","model":"llama-3.1-8b","messages":[]}`,
		`{"model":"qwen2.5-7b","mode\u006c":"llama-3.1-8b","messages":[]}`,
		`{"model":"qwen2.5-7b","messages":[],"max_tokens":1,"max_tokens":9000}`,
		`{"model":"qwen2.5-7b","messages":[],"stream":false,"\u017ftream":true}`,
		`{"model":"qwen2.5-7b","messages":[],"n":1,"n":100}`,
	}
	for _, b := range bodies {
		got, err := t.post(ctx, t.gateway+"/v1/chat/completions", t.keys["narrow"], b)
		if err != nil {
			return "", err
		}
		if got.status != http.StatusBadRequest {
			return "", fmt.Errorf("%s is answered with %d: %.200s", b, got.status, got.body)
		}
	}
	if n := t.reached(); n > 0 {
		return "", fmt.Errorf("%d requests reached a worker", n)
	}
	return fmt.Sprintf("%d bodies: 400, none reached a worker", len(bodies)), nil
}

// outputLimit asks for more than the 50 tokens that the model qwen2.5-7b may make, by every spelling.
func outputLimit(ctx context.Context, t *target) (string, error) {
	most := 0
	for _, extra := range []string{
		`"max_tokens":7000`, `"max_completion_tokens":7000`, `"max_tokens":1,"max_completion_tokens":7000`, `"max_output_tokens":1`, `"max_new_tokens":1`,
	} {
		body := `{"model":"qwen2.5-7b","messages":[{"role":"user","content":"write a long text"}],` + extra + `}`
		got, err := t.post(ctx, t.gateway+"/v1/chat/completions", t.keys["mallory"], body)
		if err != nil {
			return "", err
		}
		var u struct {
			Usage struct {
				Completion int `json:"completion_tokens"`
			} `json:"usage"`
		}
		if got.status == http.StatusOK {
			if err := json.Unmarshal([]byte(got.body), &u); err != nil {
				return "", err
			}
			most = max(most, u.Usage.Completion)
		}
		if most > 50 {
			return "", fmt.Errorf("%s: %d tokens, the limit is 50", extra, most)
		}
	}
	return fmt.Sprintf("5 spellings: at most %d tokens of 50", most), nil
}

// stoppedBodies sends a part of a body and then nothing, on a path that is passed through.
func stoppedBodies(ctx context.Context, t *target) (string, error) {
	const calls = 20
	var longest time.Duration
	var mu sync.Mutex
	var group sync.WaitGroup
	failures := make(chan error, calls)
	for i := range calls {
		path := []string{"/v1/chat/completions", "/v1/audio/transcriptions", "/v1/rerank", "/v1/embeddings"}[i%4]
		group.Go(func() {
			began := time.Now()
			got, err := t.raw(ctx, t.gateway, "POST "+path+" HTTP/1.1\r\nHost: chat\r\nAuthorization: Bearer "+t.keys["mallory"]+
				"\r\nX-Model: llama-3.1-8b\r\nX-Spillway-Deadline-Ms: 700\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"m", 25*time.Second)
			took := time.Since(began)
			mu.Lock()
			longest = max(longest, took)
			mu.Unlock()
			if err != nil || !strings.HasPrefix(got, "HTTP/1.1 4") && !strings.HasPrefix(got, "HTTP/1.1 5") {
				failures <- fmt.Errorf("%s: after %.1f s the answer is %.100q, %v", path, took.Seconds(), got, err)
			}
		})
	}
	group.Wait()
	select {
	case err := <-failures:
		return "", err
	default:
	}
	return fmt.Sprintf("%d bodies stopped: every one answered within %.1f s (deadline 0.7 s)", calls, longest.Seconds()), nil
}

// grpcCall opens a gRPC call without TLS and sends a message, or none.
func (t *target) grpcCall(ctx context.Context, key, method string, message []byte, wait time.Duration) (status string, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(t.gateway, "http://"))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return "", err
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := framer.WriteSettings(); err != nil {
		return "", err
	}
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "chat"}, {"content-type", "application/grpc"}, {"te", "trailers"},
		{"authorization", "Bearer " + key}, {"x-model", "llama-3.1-8b"}, {"x-spillway-deadline-ms", "700"},
	} {
		if err := enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return "", err
		}
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}); err != nil {
		return "", err
	}
	if message != nil {
		frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
		if err := framer.WriteData(1, true, append(frame, message...)); err != nil {
			return "", err
		}
	}
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return status, err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				if err := framer.WriteSettingsAck(); err != nil {
					return "", err
				}
			}
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				if h.Name == ":status" || h.Name == "grpc-status" || h.Name == "grpc-message" {
					status += h.Name + "=" + h.Value + " "
				}
			}
			if f.StreamEnded() {
				return status, nil
			}
		case *http2.RSTStreamFrame:
			return status + "reset=" + f.ErrCode.String(), nil
		case *http2.GoAwayFrame:
			return status + "goaway=" + f.ErrCode.String(), nil
		}
	}
}

func managementByGRPC(ctx context.Context, t *target) (string, error) {
	methods := []string{
		"/inference.GRPCInferenceService/RepositoryModelLoad", "/inference.GRPCInferenceService/RepositoryModelUnload", "/inference.GRPCInferenceService/RepositoryIndex",
		"/inference.GRPCInferenceService/SystemSharedMemoryRegister", "/inference.GRPCInferenceService/CudaSharedMemoryUnregister",
		"/inference.GRPCInferenceService/TraceSetting", "/inference.GRPCInferenceService/LogSettings", "/sglang.grpc.scheduler.SglangScheduler/Abort",
		"/vllm.Engine/Sleep", "/any.Service/Method", "/sleep",
	}
	for _, m := range methods {
		got, err := t.grpcCall(ctx, t.keys["mallory"], m, []byte{}, 5*time.Second)
		if err != nil {
			return "", fmt.Errorf("%s: %s %w", m, got, err)
		}
		if !strings.Contains(got, "grpc-status=12") && !strings.Contains(got, "grpc-status=5") && !strings.Contains(got, ":status=404") {
			return "", fmt.Errorf("%s is answered with %s", m, got)
		}
	}
	if n := t.reached(); n > 0 {
		return "", fmt.Errorf("%d calls reached a worker", n)
	}
	return fmt.Sprintf("%d methods: UNIMPLEMENTED or NOT_FOUND, none reached a worker", len(methods)), nil
}

func refusedGRPC(ctx context.Context, t *target) (string, error) {
	for range 10 {
		if _, err := t.grpcCall(ctx, t.keys["mallory"], "/inference.GRPCInferenceService/ModelInfer", modelInfer, 10*time.Second); err != nil {
			return "", err
		}
	}
	return t.expectAllReady(ctx, "10 calls to workers without gRPC")
}

// modelInfer is a ModelInferRequest that names llama-3.1-8b (field 1).
var modelInfer = append([]byte{0x0a, 12}, "llama-3.1-8b"...)

func silentGRPC(ctx context.Context, t *target) (string, error) {
	const calls = 20
	began := time.Now()
	var group sync.WaitGroup
	failures := make(chan error, calls)
	for range calls {
		group.Go(func() {
			if got, err := t.grpcCall(ctx, t.keys["single"], "/inference.GRPCInferenceService/ModelInfer", nil, 25*time.Second); err != nil {
				failures <- fmt.Errorf("a call without a message ends by %s %w", got, err)
			}
		})
	}
	group.Wait()
	select {
	case err := <-failures:
		return "", err
	default:
	}
	return fmt.Sprintf("%d calls without a message, concurrency limit 1: all ended within %.1f s (deadline 0.7 s)", calls, time.Since(began).Seconds()), nil
}

// leaveEarly asks for long prompts and leaves at once, as a tenant with 20,000 tokens a minute.
func leaveEarly(ctx context.Context, t *target) (string, error) {
	const calls = 60
	limited := 0
	body := chat(strings.Repeat("word ", 6000), 8)
	for i := range calls {
		short, cancel := context.WithTimeout(ctx, 60*time.Millisecond)
		got, err := t.post(short, t.gateway+"/v1/chat/completions", t.keys["metered"], strings.Replace(body, "word", fmt.Sprint("word", i), 1))
		cancel()
		if err == nil && got.status == http.StatusTooManyRequests {
			limited++
		}
	}
	if n := t.reached(); n > 10 {
		return "", fmt.Errorf("%d of %d prompts of about 7,000 tokens were begun in a minute that allows 20,000; %d were refused", n, calls, limited)
	}
	return fmt.Sprintf("%d of %d prompts of about 7,000 tokens were begun, %d refused with 429 (20,000 a minute)", t.reached(), calls, limited), nil
}

// heldBodies opens streams with large bodies and looks at what the gateway keeps in memory.
func heldBodies(ctx context.Context, t *target) (string, error) {
	const calls, size = 24, 7 << 20 // below max_body, 8 MiB
	pid := t.running.PID(t.fleet.Of("regional")[0])
	before := residentMB(pid)
	body := strings.Replace(stream("x"), `"content":"x"`, `"content":"`+strings.Repeat("a ", 60000)+`"`, 1)
	body = strings.Replace(body, `"stream":true`, `"stream":true,"tools":[{"type":"function","function":{"name":"f","description":"`+strings.Repeat("d", size)+`"}}]`, 1)
	body = strings.Replace(body, `"max_tokens":8`, `"max_tokens":4000`, 1)
	var group sync.WaitGroup
	statuses := make(chan int, calls)
	held, cancel := context.WithCancel(ctx)
	defer cancel()
	for range calls {
		group.Go(func() {
			req, err := http.NewRequestWithContext(held, http.MethodPost, t.gateway+"/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				return
			}
			req.Header.Set("Authorization", "Bearer "+t.keys["mallory"])
			resp, err := t.client.Do(req)
			if err != nil {
				return
			}
			defer resp.Body.Close()
			statuses <- resp.StatusCode
			<-held.Done()
		})
	}
	deadline := time.After(20 * time.Second)
	got := map[int]int{}
	for n := 0; n < calls; n++ {
		select {
		case s := <-statuses:
			got[s]++
			continue
		case <-deadline:
		}
		break
	}
	after := residentMB(pid)
	cancel()
	group.Wait()
	if got[http.StatusOK] == 0 {
		return "", fmt.Errorf("no body was let in, so the attack was not made: answers by status %v", got)
	}
	if grown := after - before; grown > 2*calls*size>>20 {
		return "", fmt.Errorf("%d open streams with bodies of 7 MiB: the gateway's memory grew from %d to %d MB", calls, before, after)
	}
	return fmt.Sprintf("%d bodies of 7 MiB: answers by status %v; the gateway's memory %d -> %d MB", calls, got, before, after), nil
}

// smuggled are requests that a gateway and a worker might read differently. None may be answered as two.
func smuggled(ctx context.Context, t *target) (string, error) {
	auth := "Host: chat\r\nAuthorization: Bearer " + t.keys["mallory"] + "\r\nContent-Type: application/json\r\n"
	second := "POST /sleep HTTP/1.1\r\nHost: worker\r\nContent-Length: 0\r\n\r\n"
	cases := []string{
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Content-Length: 5\r\nContent-Length: 60\r\n\r\nhello" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Content-Length: +5\r\n\r\nhello" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Content-Length: 0x5\r\n\r\nhello" + second,
		"POST /v1/chat/completions HTTP/1.1\n" + auth + "Transfer-Encoding: chunked\r\n\r\n5;\nx\r\nhello\r\n0\r\n\r\n" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "X: a\r\n Content-Length: 60\r\nContent-Length: 0\r\n\r\n" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n0\r\nbad trailer\r\n\r\n" + second,
	}
	for i, c := range cases {
		got, err := t.raw(ctx, t.gateway, c, 1500*time.Millisecond)
		if err != nil {
			return "", fmt.Errorf("case %d: %w", i, err)
		}
		if n := strings.Count(got, "HTTP/1.1 2"); n > 0 {
			return "", fmt.Errorf("case %d is answered with %.200q", i, got)
		}
	}
	if n := t.reached(); n > 0 {
		return "", fmt.Errorf("%d requests reached a worker", n)
	}
	return fmt.Sprintf("%d ambiguous requests refused, none reached a worker", len(cases)), nil
}
