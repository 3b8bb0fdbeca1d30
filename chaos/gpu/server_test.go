package gpu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spillway-lb/spillway/internal/testkit"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testClient has its own connections, so that a test can close them before it checks for leaks.
type testClient struct {
	*http.Client
	url string
	t   testing.TB
}

func startServer(t testing.TB, c Config) (*Server, *testClient) {
	t.Helper()
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.GPU == "" {
		c.GPU = "H100"
	}
	if c.Model == "" {
		c.Model = "Llama-3.1-8B"
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		dead, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.Stop(dead); err != nil {
			t.Error(err)
		}
	})
	return s, &testClient{Client: &http.Client{Transport: transport}, url: s.URL(), t: t}
}

func (c *testClient) openStream(ctx context.Context, path, body string) *http.Response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

func (c *testClient) postBody(path, body string) (int, string) {
	c.t.Helper()
	resp := c.openStream(context.Background(), path, body)
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(all)
}

func (c *testClient) getPage(path string) (int, string) {
	c.t.Helper()
	resp, err := c.Get(c.url + path)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(all)
}

type usageCounts struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

type streamChunk struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Model   string `json:"model"`
	Choices []struct {
		Text  string `json:"text"`
		Delta struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"delta"`
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		Finish *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *usageCounts `json:"usage"`
	Error *struct {
		Message string `json:"message"`
		Code    int    `json:"code"`
	} `json:"error"`
}

func readEvents(t testing.TB, r io.Reader) (list []streamChunk, done bool, err error) {
	t.Helper()
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		data, ok := strings.CutPrefix(scanner.Text(), "data: ")
		switch {
		case scanner.Text() == "":
		case !ok:
			t.Fatalf("not an event: %q", scanner.Text())
		case data == "[DONE]":
			done = true
		default:
			var c streamChunk
			if err := json.Unmarshal([]byte(data), &c); err != nil {
				t.Fatalf("%v in %q", err, data)
			}
			list = append(list, c)
		}
	}
	return list, done, scanner.Err()
}

func TestStreamedChat(t *testing.T) {
	_, c := startServer(t, Config{Speed: 50})
	resp := c.openStream(context.Background(), "/v1/chat/completions",
		`{"model":"Llama-3.1-8B","messages":[{"role":"user","content":"hello there"}],"max_tokens":20,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`)
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || !strings.HasPrefix(got, "text/event-stream") {
		t.Fatalf("%d %s", resp.StatusCode, got)
	}
	list, done, err := readEvents(t, resp.Body)
	if err != nil || !done || len(list) != 22 {
		t.Fatalf("%d events, done %v, %v; want the role, 20 tokens and the usage", len(list), done, err)
	}
	if list[0].Choices[0].Delta.Role != "assistant" || list[0].Object != "chat.completion.chunk" {
		t.Errorf("first event %+v", list[0])
	}
	for i, e := range list[1:21] {
		if e.Choices[0].Delta.Content == "" || e.ID != list[0].ID {
			t.Errorf("token %d: %+v", i, e)
		}
		if last := i == 19; (e.Choices[0].Finish != nil) != last || last && *e.Choices[0].Finish != "length" {
			t.Errorf("token %d ends the answer wrongly", i)
		}
	}
	if u := list[21].Usage; len(list[21].Choices) != 0 || u == nil || u.Prompt != 3 || u.Completion != 20 || u.Total != 23 {
		t.Errorf("usage %+v", u)
	}
}

func TestWholeAnswersEqualStreamedOnes(t *testing.T) {
	_, c := startServer(t, Config{Speed: 100})
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		ask := `"model":"Llama-3.1-8B","messages":[{"role":"user","content":"a tale"}],"prompt":"a tale","max_tokens":12`
		status, whole := c.postBody(path, "{"+ask+"}")
		var w streamChunk
		if err := json.Unmarshal([]byte(whole), &w); err != nil || status != 200 {
			t.Fatalf("%d %s: %v", status, whole, err)
		}
		_, streamed := c.postBody(path, "{"+ask+`,"stream":true}`)
		list, done, err := readEvents(t, strings.NewReader(streamed))
		if !done || err != nil {
			t.Fatalf("stream: done %v, %v", done, err)
		}
		var text strings.Builder
		for _, e := range list {
			text.WriteString(e.Choices[0].Delta.Content + e.Choices[0].Text)
		}
		if got := w.Choices[0].Message.Content + w.Choices[0].Text; got != text.String() || got == "" {
			t.Errorf("%s: whole %q, streamed %q", path, got, text.String())
		}
		if *w.Choices[0].Finish != *list[len(list)-1].Choices[0].Finish || w.Usage == nil {
			t.Errorf("%s: the two end differently", path)
		}
	}
}

func TestPrefixIsCachedAcrossRequests(t *testing.T) {
	_, c := startServer(t, Config{Speed: 100})
	ask := func(content string) usageCounts {
		body := fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"max_tokens":2}`, content)
		_, answer := c.postBody("/v1/chat/completions", body)
		var w streamChunk
		if err := json.Unmarshal([]byte(answer), &w); err != nil || w.Usage == nil {
			t.Fatalf("%v: %s", err, answer)
		}
		return *w.Usage
	}
	system := strings.Repeat("rule of the house. ", 100) // 1,900 bytes: 475 tokens, 29 full blocks
	first, again, other := ask(system+"one"), ask(system+"two"), ask("x"+system)
	if first.Details.Cached != 0 || again.Details.Cached != 29*16 || other.Details.Cached != 0 {
		t.Errorf("cached %d, %d, %d tokens; want 0, 464, 0", first.Details.Cached, again.Details.Cached, other.Details.Cached)
	}
}

func TestUnsupportedRequestsAreRefused(t *testing.T) {
	_, c := startServer(t, Config{Speed: 100, MaxBody: 2000, Limits: EngineLimits{MaxModelLen: 100}})
	chat := `"messages":[{"role":"user","content":"hi"}]`
	for _, x := range []struct {
		name, body string
		status     int
		says       string
	}{
		{"not JSON", `{`, 400, "not a request"},
		{"other model", `{"model":"gpt-9",` + chat + `}`, 404, "The model `gpt-9` does not exist."},
		{"too large", `{"x":"` + strings.Repeat("a", 3000) + `"}`, 413, "larger than 2000 bytes"},
		{"no messages", `{"model":"Llama-3.1-8B"}`, 400, "at least one"},
		{"empty prompt", `{"messages":[{"role":"user","content":""}]}`, 400, "empty"},
		{"image", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "only text"},
		{"too long", `{` + chat + `,"max_tokens":100}`, 400, "maximum context length is 100 tokens"},
		{"no output", `{` + chat + `,"max_tokens":0}`, 400, "at least 1"},
		{"two choices", `{` + chat + `,"n":2}`, 400, "n = 1"},
		{"tools", `{` + chat + `,"tools":[{"type":"function"}]}`, 400, "tools"},
		{"logprobs", `{` + chat + `,"logprobs":true}`, 400, "logprobs"},
		{"json mode", `{` + chat + `,"response_format":{"type":"json_object"}}`, 400, "response_format"},
		{"stop word", `{` + chat + `,"stop":["cat"]}`, 400, "stop"},
		{"min over max", `{` + chat + `,"max_tokens":5,"min_tokens":6}`, 400, "min_tokens"},
		{"options without stream", `{` + chat + `,"stream_options":{"include_usage":true}}`, 400, "stream_options"},
	} {
		t.Run(x.name, func(t *testing.T) {
			status, body := c.postBody("/v1/chat/completions", x.body)
			var e streamChunk
			if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error == nil {
				t.Fatalf("%d %s: %v", status, body, err)
			}
			if status != x.status || e.Error.Code != x.status || !strings.Contains(e.Error.Message, x.says) {
				t.Errorf("%d %s; want %d and %q", status, body, x.status, x.says)
			}
		})
	}
	if status, body := c.postBody("/v1/chat/completions", `{`+chat+`,"max_tokens":3,"stop":["\n"],"tools":[],"n":1,"temperature":0.2}`); status != 200 {
		t.Errorf("a harmless request: %d %s", status, body)
	}
}

func TestDisconnectFreesTheSequence(t *testing.T) {
	s, c := startServer(t, Config{})
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	resp := c.openStream(ctx, "/v1/chat/completions",
		`{"messages":[{"role":"user","content":"go on for long"}],"max_tokens":20000,"ignore_eos":true,"stream":true}`)
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if g := s.Gauges(); g.Running != 1 || g.KVUsed == 0 {
		t.Fatalf("not running: %+v", g)
	}
	leave()
	took := testkit.Eventually(t, "the sequence is freed", func() bool { g := s.Gauges(); return g.Running == 0 && g.KVUsed == 0 })
	t.Logf("freed after %v", took)
	if took > 100*time.Millisecond {
		t.Errorf("a client that left held its sequence for %v", took)
	}
}

func TestMetricsPage(t *testing.T) {
	_, c := startServer(t, Config{Speed: 100, ServedModel: "meta/llama"})
	c.postBody("/v1/completions", `{"model":"meta/llama","prompt":"some words here","max_tokens":7,"ignore_eos":true}`)
	_, text := c.getPage("/metrics")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	labels := func(m *dto.Metric) string {
		var b strings.Builder
		for _, l := range m.Label {
			fmt.Fprintf(&b, "%s=%s ", l.GetName(), l.GetValue())
		}
		return b.String()
	}
	for _, name := range []string{"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total", "prefix_cache_queries_total", "prefix_cache_hits_total"} {
		f := families["vllm:"+name]
		if f == nil || labels(f.Metric[0]) != "engine=0 model_name=meta/llama " {
			t.Errorf("%s: %v", name, f)
		}
	}
	if got := families["vllm:generation_tokens_total"].Metric[0].Counter.GetValue(); got != 7 {
		t.Errorf("generated %v tokens, want 7", got)
	}
	if got := families["vllm:prompt_tokens_total"].Metric[0].Counter.GetValue(); got != 4 {
		t.Errorf("prompt tokens %v, want 4", got)
	}
	if got := labels(families["vllm:cache_config_info"].Metric[0]); !strings.Contains(got, "block_size=16") || !strings.Contains(got, "num_gpu_blocks=28155") {
		t.Errorf("cache config %q", got)
	}
	for name, want := range map[string]uint64{"time_to_first_token_seconds": 1, "inter_token_latency_seconds": 6, "e2e_request_latency_seconds": 1} {
		if got := families["vllm:"+name].Metric[0].Histogram.GetSampleCount(); got != want {
			t.Errorf("%s counts %d, want %d", name, got, want)
		}
	}
}

func TestModelsAndHealth(t *testing.T) {
	_, c := startServer(t, Config{ServedModel: "chat-small"})
	status, body := c.getPage("/v1/models")
	var list struct {
		Object string
		Data   []modelEntry
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil || status != 200 || len(list.Data) != 1 {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	if m := list.Data[0]; m.ID != "chat-small" || m.Root != "Llama-3.1-8B" || m.MaxModelLen != 131072 {
		t.Errorf("%+v", m)
	}
	if status, _ := c.getPage("/health"); status != 200 {
		t.Errorf("health %d", status)
	}
}

func TestIdleWorkerSleeps(t *testing.T) {
	s, c := startServer(t, Config{Speed: 100})
	c.postBody("/v1/completions", `{"prompt":"wake up","max_tokens":3}`)
	testkit.Eventually(t, "nothing runs", func() bool { return s.Gauges().Running == 0 })
	if wait, busy := s.driver.advanceDue(); busy {
		t.Errorf("an idle worker wants to wake after %v", wait)
	}
}

func TestPortInUseErrorNamesAddressAndModel(t *testing.T) {
	s, _ := startServer(t, Config{})
	_, err := New(Config{Listen: s.Addr().String(), GPU: "L4", Model: "Qwen2.5-7B"})
	if err == nil || !strings.Contains(err.Error(), s.Addr().String()) || !strings.Contains(err.Error(), "Qwen2.5-7B") {
		t.Errorf("%v: want which port, and who wanted it", err)
	}
}

func TestStopLetsAnswersFinish(t *testing.T) {
	s, err := New(Config{Listen: "127.0.0.1:0", GPU: "H100", Model: "Llama-3.1-8B", Speed: 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c := &testClient{Client: &http.Client{Transport: transport}, url: s.URL(), t: t}
	resp := c.openStream(context.Background(), "/v1/completions", `{"prompt":"last words","max_tokens":50,"ignore_eos":true,"stream":true}`)
	defer resp.Body.Close()
	stopped := make(chan error)
	go func() { stopped <- s.Stop(context.Background()) }()
	list, done, err := readEvents(t, resp.Body)
	if !done || err != nil || len(list) != 50 {
		t.Errorf("%d events, done %v, %v", len(list), done, err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func (c *testClient) setChaos(body string) {
	c.t.Helper()
	if status, answer := c.postBody("/chaos", body); status != 200 {
		c.t.Fatalf("chaos %s: %d %s", body, status, answer)
	}
}

const longRequest = `{"prompt":"tell me all","max_tokens":5000,"ignore_eos":true,"stream":true}`

func TestChaosFailRefusesRequests(t *testing.T) {
	_, c := startServer(t, Config{Speed: 100})
	c.setChaos(`{"mode":"fail","status":503}`)
	if status, _ := c.postBody("/v1/completions", longRequest); status != 503 {
		t.Errorf("status %d, want 503", status)
	}
	if status, _ := c.getPage("/health"); status != 503 {
		t.Errorf("health %d, want 503", status)
	}
	c.setChaos(`{"mode":"ok"}`)
	if status, _ := c.postBody("/v1/completions", `{"prompt":"x","max_tokens":1}`); status != 200 {
		t.Errorf("well again, but %d", status)
	}
}

func TestChaosShareFailsSomeRequests(t *testing.T) {
	_, c := startServer(t, Config{Speed: 1000})
	c.setChaos(`{"mode":"fail","share":0.5}`)
	failed := 0
	for range 40 {
		if status, _ := c.postBody("/v1/completions", `{"prompt":"x","max_tokens":1}`); status == 500 {
			failed++
		}
	}
	if failed < 8 || failed > 32 {
		t.Errorf("%d of 40 failed, want about half", failed)
	}
}

func TestChaosStallAcceptsAndEmitsNothing(t *testing.T) {
	s, c := startServer(t, Config{Speed: 10})
	c.setChaos(`{"mode":"stall"}`)
	resp := c.openStream(context.Background(), "/v1/completions", longRequest)
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatalf("a stalled worker accepts, this one answered %d", resp.StatusCode)
	}
	if status, _ := c.getPage("/health"); status != 200 {
		t.Errorf("health %d: a stalled worker looks well", status)
	}
	if g := s.Gauges(); g.Waiting != 1 {
		t.Errorf("%+v, want one waiting", g)
	}
	c.setChaos(`{"mode":"ok"}`)
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Errorf("no byte after the stall: %v", err)
	}
}

func TestChaosOutOfMemoryEndsStreams(t *testing.T) {
	s, c := startServer(t, Config{})
	resp := c.openStream(context.Background(), "/v1/completions", longRequest)
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	c.setChaos(`{"mode":"oom"}`)
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Contains(rest, []byte(`"message":"CUDA out of memory`)) || !bytes.HasSuffix(rest, []byte("data: [DONE]\n\n")) {
		t.Errorf("the running stream ended with %v, %q", err, rest[max(0, len(rest)-200):])
	}
	if status, body := c.postBody("/v1/completions", longRequest); status != 500 || !strings.Contains(body, "CUDA out of memory") {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := c.getPage("/health"); status != 503 {
		t.Errorf("health %d", status)
	}
	if g := s.Gauges(); g.Running+g.Waiting+g.KVUsed != 0 {
		t.Errorf("%+v", g)
	}
}

func TestChaosDieMidstreamCutsStream(t *testing.T) {
	_, c := startServer(t, Config{Speed: 20})
	c.setChaos(`{"mode":"die_midstream","after_tokens":5}`)
	resp := c.openStream(context.Background(), "/v1/completions", longRequest)
	defer resp.Body.Close()
	list, done, err := readEvents(t, resp.Body)
	if len(list) != 5 || done || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%d tokens, done %v, %v; want 5 and a cut connection", len(list), done, err)
	}
}

func TestChaosSlowExpires(t *testing.T) {
	s, c := startServer(t, Config{Speed: 1000})
	c.setChaos(`{"mode":"slow","factor":7,"for":"20ms"}`)
	s.driver.mu.Lock()
	slowdown := s.driver.engine.slowdown
	s.driver.mu.Unlock()
	if slowdown != 7 && s.chaos.loadCurrent().Mode == ModeSlow {
		t.Errorf("slowdown %v", slowdown)
	}
	testkit.Eventually(t, "the mode ends by itself", func() bool { return s.chaos.loadCurrent().Mode == ModeOK })
	if _, body := c.getPage("/chaos"); strings.TrimSpace(body) != `{"mode":"ok"}` {
		t.Errorf("GET /chaos: %s", body)
	}
}

func TestChaosRefusesNonsense(t *testing.T) {
	_, c := startServer(t, Config{})
	for _, body := range []string{
		`{"mode":"sulk"}`, `{}`, `{"mode":"fail","status":200}`, `{"mode":"slow","factor":-1}`, `{"mode":"fail","share":2}`,
		`{"mode":"stall","for":"soon"}`, `{"mode":"stall","for":"-1s"}`, `{"mode":"ok","typo":1}`, `{"mode":"die_midstream","after_tokens":-1}`,
	} {
		if status, answer := c.postBody("/chaos", body); status != 400 {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	if _, body := c.getPage("/chaos"); strings.TrimSpace(body) != `{"mode":"ok"}` {
		t.Errorf("nonsense changed the mode: %s", body)
	}
}
