package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// fakeEmbedder is an engine for embeddings and inferences that counts its calls. A vector is the input's own text as
// numbers. It refuses a call with an input "poison", fails on "bomb", and with "short" in a merged call it returns
// one result too few.
type fakeEmbedder struct {
	*httptest.Server
	calls, inputs atomic.Int64
	hold          atomic.Pointer[chan struct{}] // while set, answers wait for it
	maxInputs     int                           // inputs accepted in one call; 0 is any number
	kv            atomic.Int64                  // blocks of its KV cache; 0: not reported
}

func newFakeEmbedder(t *testing.T) *fakeEmbedder {
	e := &fakeEmbedder{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"bge","max_model_len":512},{"id":"org/resnet","max_model_len":512}]}`)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "vllm:num_requests_running{engine=\"0\"} 0\nvllm:num_requests_waiting{engine=\"0\"} 0\nvllm:kv_cache_usage_perc 0\n")
		if n := e.kv.Load(); n > 0 {
			_, _ = fmt.Fprintf(w, "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"%d\"} 1\n", n)
		}
	})
	mux.HandleFunc("POST /v1/embeddings", e.serveEmbeddings)
	mux.HandleFunc("POST /v2/models/{model}/infer", e.serveInference)
	e.Server = httptest.NewServer(mux)
	t.Cleanup(e.Close)
	return e
}

// holdAnswers makes answers wait until the returned function is called.
func (e *fakeEmbedder) holdAnswers() (release func()) {
	gate := make(chan struct{})
	e.hold.Store(&gate)
	return func() {
		e.hold.CompareAndSwap(&gate, nil)
		close(gate)
	}
}

func (e *fakeEmbedder) waitForRelease(r *http.Request) {
	if gate := e.hold.Load(); gate != nil {
		select {
		case <-*gate:
		case <-r.Context().Done():
		}
	}
}

func (e *fakeEmbedder) serveEmbeddings(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var req struct{ Input json.RawMessage }
	_ = json.Unmarshal(body, &req)
	var list []string
	if json.Unmarshal(req.Input, &list) != nil {
		list = []string{""}
		_ = json.Unmarshal(req.Input, &list[0])
	}
	e.calls.Add(1)
	e.inputs.Add(int64(len(list)))
	e.waitForRelease(r)
	if e.maxInputs > 0 && len(list) > e.maxInputs {
		writeError(w, 422, "too many inputs")
		return
	}
	var data []string
	for i, text := range list {
		switch {
		case text == "poison":
			writeError(w, 400, "input poison is refused, and so are its neighbours")
			return
		case text == "bomb":
			writeError(w, 500, "input bomb broke me")
			return
		case text == "short" && len(list) > 1:
			continue
		}
		vector, _ := json.Marshal([]int{len(text), int(text[0]), int(text[len(text)-1])})
		data = append([]string{fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":%s}`, i, vector)}, data...) // in reverse order
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"object":"list","data":[%s],"model":"bge","usage":{"prompt_tokens":%d,"total_tokens":%d}}`, strings.Join(data, ","), 10*len(list), 10*len(list))
}

func writeError(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"error":{"message":%q}}`, message)
}

func (e *fakeEmbedder) serveInference(w http.ResponseWriter, r *http.Request) {
	var req struct {
		ID     string
		Inputs []struct {
			Shape []int
			Data  []float64
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		writeError(w, 400, err.Error())
		return
	}
	e.calls.Add(1)
	e.inputs.Add(int64(req.Inputs[0].Shape[0]))
	e.waitForRelease(r)
	for i := range req.Inputs[0].Data {
		req.Inputs[0].Data[i] *= 2
	}
	out, _ := json.Marshal(req.Inputs[0].Data)
	shape, _ := json.Marshal(req.Inputs[0].Shape)
	_, _ = fmt.Fprintf(w, `{"model_name":%q,"id":%q,"outputs":[{"name":"y","datatype":"FP32","shape":%s,"data":%s}]}`, r.PathValue("model"), req.ID, shape, out)
}

// startBatchingAgent runs an agent over one embedder with a long delay, so that only actions of the test send a call.
func startBatchingAgent(t *testing.T, e *fakeEmbedder, reg *prometheus.Registry, change func(*spec.BatchPolicy)) *local.Agent {
	t.Helper()
	s := &spec.Spec{}
	s.Routing.Batch = spec.BatchPolicy{MaxDelay: spec.Duration(10 * time.Second), InferModels: []string{"org/resnet"}}
	if change != nil {
		change(&s.Routing.Batch)
	}
	return startAgent(t, func(c *local.Config) {
		c.Spec, c.Workers, c.Registry = s, []discover.Worker{{Name: "w1", URL: e.URL, GPU: "L4"}}, reg
	}, &fakeVLLM{name: "w1", Server: e.Server})
}

type httpReply struct {
	status int
	body   string
	header http.Header
}

// postAsync posts a body and returns its answer in a channel.
func postAsync(ctx context.Context, a *local.Agent, path, body string) <-chan httpReply {
	out := make(chan httpReply, 1)
	go func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.Addr().String()+path, strings.NewReader(body))
		if err != nil {
			out <- httpReply{body: err.Error()}
			return
		}
		resp, err := testClient.Do(req)
		if err != nil {
			out <- httpReply{body: err.Error()}
			return
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			text = []byte(err.Error())
		}
		out <- httpReply{resp.StatusCode, string(text), resp.Header}
	}()
	return out
}

const embeddingsPath = "/v1/embeddings"

func embeddingBody(text string) string { return `{"model":"bge","input":"` + text + `"}` }

// checkVectors compares an answer with the texts' own vectors.
func checkVectors(t *testing.T, r httpReply, texts ...string) {
	t.Helper()
	var got struct {
		Data []struct {
			Index     int
			Embedding []int
		}
		Usage struct {
			Prompt int `json:"prompt_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(r.body), &got); err != nil || r.status != 200 || len(got.Data) != len(texts) {
		t.Errorf("%d %s for %q (%v)", r.status, r.body, texts, err)
		return
	}
	for i, text := range texts {
		if d := got.Data[i]; d.Index != i || fmt.Sprint(d.Embedding) != fmt.Sprint([]int{len(text), int(text[0]), int(text[len(text)-1])}) {
			t.Errorf("%q is given %+v", text, d)
		}
	}
	if got.Usage.Prompt == 0 {
		t.Errorf("%q has no usage: %s", texts, r.body)
	}
}

// postBehindBusyEngine sends the bodies while a call occupies the engine, waits until all are pending, and releases
// the engine.
func postBehindBusyEngine(t *testing.T, e *fakeEmbedder, a *local.Agent, path string, bodies ...string) []httpReply {
	t.Helper()
	before := e.calls.Load()
	release := e.holdAnswers()
	first := postAsync(t.Context(), a, path, bodies[0])
	testkit.Eventually(t, "the engine busy", func() bool { return e.calls.Load() == before+1 })
	var later []<-chan httpReply
	for _, b := range bodies[1:] {
		later = append(later, postAsync(t.Context(), a, path, b))
	}
	testkit.Eventually(t, "everybody on the bus", func() bool { return countBatched(a) == len(bodies) })
	release()
	out := []httpReply{<-first}
	for _, c := range later {
		out = append(out, <-c)
	}
	return out
}

func countBatched(a *local.Agent) int {
	return a.PendingBatched("bge") + a.PendingBatched("org/resnet")
}

func TestEmbeddingsAreBatchedWhileEngineIsBusy(t *testing.T) {
	e, reg := newFakeEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startBatchingAgent(t, e, reg, nil)
	bodies := []string{embeddingBody("first")}
	for i := range 40 {
		bodies = append(bodies, embeddingBody(fmt.Sprintf("text number %d", i)))
	}
	bodies = append(bodies, `{"model":"bge","input":["two","texts"]}`)
	replies := postBehindBusyEngine(t, e, a, embeddingsPath, bodies...)
	checkVectors(t, replies[0], "first")
	for i := range 40 {
		checkVectors(t, replies[1+i], fmt.Sprintf("text number %d", i))
	}
	checkVectors(t, replies[41], "two", "texts")
	if e.calls.Load() != 2 || e.inputs.Load() != 43 {
		t.Errorf("%d calls with %d inputs, want 2 with 43", e.calls.Load(), e.inputs.Load())
	}
	ids := map[string]bool{}
	for _, r := range replies {
		ids[r.header.Get("X-Request-Id")] = true
		if r.header.Get("X-Spillway-Route") != "us/us-a/w1" || r.header.Get("Content-Type") != "application/json" {
			t.Fatalf("head is %v", r.header)
		}
	}
	if len(ids) != len(replies) {
		t.Errorf("%d request ids for %d requests", len(ids), len(replies))
	}
	want := `# HELP spillway_local_batch_calls_total Batched calls by the reason to send them at that time.
# TYPE spillway_local_batch_calls_total counter
spillway_local_batch_calls_total{model="bge",reason="idle"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_local_batch_calls_total"); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, "the answers' tokens counted", func() bool {
		return testutil.GatherAndCompare(reg, strings.NewReader(`# HELP spillway_local_tokens_total Tokens by model, class and kind (prompt, of which cached, and completion); source separates counts of the engine from estimates.
# TYPE spillway_local_tokens_total counter
spillway_local_tokens_total{class="standard",kind="prompt",model="bge",source="stated"} 430
`), "spillway_local_tokens_total") == nil
	})
}

func TestRefusedBatchItemDoesNotFailOthers(t *testing.T) {
	e, reg := newFakeEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startBatchingAgent(t, e, reg, nil)
	r := postBehindBusyEngine(t, e, a, embeddingsPath, embeddingBody("first"), embeddingBody("well"), embeddingBody("poison"), embeddingBody("also"))
	checkVectors(t, r[1], "well")
	checkVectors(t, r[3], "also")
	if r[2].status != 400 || !strings.Contains(r[2].body, "poison") {
		t.Errorf("the guilty one got %d %s", r[2].status, r[2].body)
	}
	if e.calls.Load() != 1+1+3 {
		t.Errorf("%d calls, want 5: one, one for three, and each of them alone", e.calls.Load())
	}
	want := `# HELP spillway_local_batch_splits_total Batched calls whose requests were sent again individually, by cause: refused, or a response that did not match the batch.
# TYPE spillway_local_batch_splits_total counter
spillway_local_batch_splits_total{cause="refused",model="bge"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_local_batch_splits_total"); err != nil {
		t.Error(err)
	}
	r = postBehindBusyEngine(t, e, a, embeddingsPath, embeddingBody("first"), embeddingBody("short"), embeddingBody("other"))
	checkVectors(t, r[1], "short")
	checkVectors(t, r[2], "other")
}

func TestBatchErrorHidesOtherRequestsContent(t *testing.T) {
	e, reg := newFakeEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startBatchingAgent(t, e, reg, nil)
	r := postBehindBusyEngine(t, e, a, embeddingsPath, embeddingBody("first"), embeddingBody("well"), embeddingBody("bomb"))
	for _, got := range r[1:] {
		if got.status != 500 || strings.Contains(got.body, "bomb") || !strings.Contains(got.body, "upstream_error") {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	if e.calls.Load() != 2 {
		t.Errorf("%d calls: a computed 5xx is never retried", e.calls.Load())
	}
}

func TestIdenticalRequestsAreCoalesced(t *testing.T) {
	e, reg := newFakeEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startBatchingAgent(t, e, reg, nil)
	r := postBehindBusyEngine(t, e, a, embeddingsPath, embeddingBody("same"), embeddingBody("same"), embeddingBody("other"), embeddingBody("same"), embeddingBody("other"))
	for i, text := range []string{"same", "same", "other", "same", "other"} {
		checkVectors(t, r[i], text)
	}
	if e.calls.Load() != 2 || e.inputs.Load() != 2 {
		t.Errorf("%d calls with %d inputs, want 2 with 2", e.calls.Load(), e.inputs.Load())
	}
	want := `# HELP spillway_local_batch_shared_total Requests answered with the response to an identical request.
# TYPE spillway_local_batch_shared_total counter
spillway_local_batch_shared_total{model="bge"} 3
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_local_batch_shared_total"); err != nil {
		t.Error(err)
	}
}

func TestDifferentParametersAreNotBatchedTogether(t *testing.T) {
	e, reg := newFakeEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startBatchingAgent(t, e, reg, func(b *spec.BatchPolicy) { b.MaxDelay = spec.Duration(time.Millisecond) })
	with := func(more string) string { return `{"model":"bge","input":"x",` + more + `}` }
	r := postBehindBusyEngine(t, e, a, embeddingsPath, embeddingBody("first"), with(`"dimensions":2`), with(`"dimensions":3`), with(`"encoding_format":"float"`), with(`"user":"u"`))
	for _, got := range r[1:] {
		checkVectors(t, got, "x")
	}
	if e.calls.Load() != 5 {
		t.Errorf("%d calls, want 5", e.calls.Load())
	}
}

func TestBatchingCanBeDisabled(t *testing.T) {
	e, reg := newFakeEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startBatchingAgent(t, e, reg, func(b *spec.BatchPolicy) { b.Enabled = new(bool) })
	release := e.holdAnswers()
	one, two := postAsync(t.Context(), a, embeddingsPath, embeddingBody("same")), postAsync(t.Context(), a, embeddingsPath, embeddingBody("same"))
	testkit.Eventually(t, "two calls", func() bool { return e.calls.Load() == 2 })
	release()
	checkVectors(t, <-one, "same")
	checkVectors(t, <-two, "same")
}

func TestBatchMemberDisconnectDelaysNoOther(t *testing.T) {
	e, reg := newFakeEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startBatchingAgent(t, e, reg, nil)
	release := e.holdAnswers()
	busy, leaveCall := context.WithCancel(t.Context())
	first := postAsync(busy, a, embeddingsPath, embeddingBody("leaves in mid-call"))
	testkit.Eventually(t, "the engine busy", func() bool { return e.calls.Load() == 1 })
	waiting, leaveLine := context.WithCancel(t.Context())
	second := postAsync(waiting, a, embeddingsPath, embeddingBody("leaves while it waits"))
	stays := postAsync(t.Context(), a, embeddingsPath, embeddingBody("stays"))
	testkit.Eventually(t, "three on the bus", func() bool { return countBatched(a) == 3 })
	leaveLine()
	<-second
	testkit.Eventually(t, "two on the bus", func() bool { return countBatched(a) == 2 })
	leaveCall() // no member waits for the call any more: it is cancelled and the next one starts
	<-first
	testkit.Eventually(t, "the next call", func() bool { return e.calls.Load() == 2 })
	release()
	checkVectors(t, <-stays, "stays")
	if e.inputs.Load() != 2 {
		t.Errorf("%d inputs were sent, want 2: the input of a cancelled request is not sent", e.inputs.Load())
	}
}

func TestBatchMembersKeepTheirOwnDeadlines(t *testing.T) {
	e, reg := newFakeEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startBatchingAgent(t, e, reg, nil)
	release := e.holdAnswers()
	first := postAsync(t.Context(), a, embeddingsPath, embeddingBody("first"))
	testkit.Eventually(t, "the engine busy", func() bool { return e.calls.Load() == 1 })
	patient := postAsync(t.Context(), a, embeddingsPath, embeddingBody("patient"))
	req, _ := http.NewRequest(http.MethodPost, "http://"+a.Addr().String()+embeddingsPath, strings.NewReader(embeddingBody("hasty")))
	req.Header.Set("X-Spillway-Deadline-Ms", "20")
	resp, err := testClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 504 {
		t.Errorf("the hasty one got %d", resp.StatusCode)
	}
	release()
	checkVectors(t, <-first, "first")
	checkVectors(t, <-patient, "patient")
}

func TestEngineInputLimitIsLearned(t *testing.T) {
	e, reg := newFakeEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	e.maxInputs = 2
	a := startBatchingAgent(t, e, reg, func(b *spec.BatchPolicy) { b.MaxDelay = spec.Duration(time.Millisecond) })
	for range 4 {
		bodies := []string{embeddingBody("first")}
		for i := range 4 {
			bodies = append(bodies, embeddingBody(fmt.Sprintf("text %d", i)))
		}
		for i, r := range postBehindBusyEngine(t, e, a, embeddingsPath, bodies...)[1:] {
			checkVectors(t, r, fmt.Sprintf("text %d", i))
		}
	}
	want := `# HELP spillway_local_batch_splits_total Batched calls whose requests were sent again individually, by cause: refused, or a response that did not match the batch.
# TYPE spillway_local_batch_splits_total counter
spillway_local_batch_splits_total{cause="refused",model="bge"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_local_batch_splits_total"); err != nil {
		t.Error(err)
	}
}

func TestManyInputsDoNotCountAsOneLongPrompt(t *testing.T) {
	e, reg := newFakeEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startBatchingAgent(t, e, reg, nil)
	var list bytes.Buffer
	for i := range 50 { // 100 tokens each, for a model with a context of 512
		if i > 0 {
			list.WriteByte(',')
		}
		list.WriteString(`"` + strings.Repeat("word", 100) + `"`)
	}
	if r := <-postAsync(t.Context(), a, embeddingsPath, `{"model":"bge","input":[`+list.String()+`]}`); r.status != 200 {
		t.Errorf("%d %.200s", r.status, r.body)
	}
	if r := <-postAsync(t.Context(), a, embeddingsPath, embeddingBody(strings.Repeat("word", 20_000))); r.status != 400 || !strings.Contains(r.body, "context_too_long") {
		t.Errorf("one long text: %d %.200s", r.status, r.body)
	}
}

func TestKServeInferencesAreBatched(t *testing.T) {
	e, reg := newFakeEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startBatchingAgent(t, e, reg, nil)
	body := func(id string, n float64) string {
		return fmt.Sprintf(`{"id":%q,"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[%g,%g]}]}`, id, n, n+1)
	}
	const path = "/v2/models/org%2Fresnet/infer"
	r := postBehindBusyEngine(t, e, a, path, body("a", 1), body("b", 10), body("c", 20))
	for i, want := range []string{`"id":"a","outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"data":[2,4]}]`, `"id":"b","outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"data":[20,22]}]`, `"id":"c","outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"data":[40,42]}]`} {
		if r[i].status != 200 || !strings.Contains(r[i].body, want) {
			t.Errorf("%d %s, want %s", r[i].status, r[i].body, want)
		}
	}
	if e.calls.Load() != 2 || e.inputs.Load() != 3 {
		t.Errorf("%d calls with %d rows, want 2 with 3", e.calls.Load(), e.inputs.Load())
	}
	// A model whose first dimension is not declared as a batch is never merged.
	release := e.holdAnswers()
	one, two := postAsync(t.Context(), a, "/v2/models/bge/infer", body("a", 1)), postAsync(t.Context(), a, "/v2/models/bge/infer", body("b", 1))
	testkit.Eventually(t, "two calls more", func() bool { return e.calls.Load() == 4 })
	release()
	if x, y := <-one, <-two; x.status != 200 || y.status != 200 {
		t.Errorf("%v %v", x, y)
	}
	if x := <-postAsync(t.Context(), a, "/v2/models/none/infer", body("a", 1)); x.status != 404 {
		t.Errorf("unknown model: %v", x)
	}
}

// stopDuringBatch stops an instance while three members wait for a call that hangs, and returns their replies.
func stopDuringBatch(t *testing.T, within func() (context.Context, context.CancelFunc)) (replies []httpReply, err error) {
	t.Helper()
	e, reg := newFakeEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startBatchingAgent(t, e, reg, nil)
	release := e.holdAnswers()
	defer release()
	var members []<-chan httpReply
	for i := range 3 {
		members = append(members, postAsync(context.Background(), a, embeddingsPath, embeddingBody(fmt.Sprint("text", i))))
	}
	testkit.Eventually(t, "all are pending", func() bool { return countBatched(a) == 3 })
	ctx, cancel := within()
	defer cancel()
	err = a.Stop(ctx)
	for _, r := range members {
		replies = append(replies, <-r)
	}
	return replies, err
}

func TestStopDoesNotWaitForBatchMembers(t *testing.T) {
	// With the deadline already over, members without an answer get none.
	over := func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return ctx, cancel
	}
	if replies, err := stopDuringBatch(t, over); err == nil {
		t.Errorf("answers were cut short without an error from Stop: %v", replies)
	}
}

// TestStopHandsBackBatchMembers: shortly before its deadline, Stop hands back requests without an answer. If one gets
// no reply even so, Stop returns an error.
func TestStopHandsBackBatchMembers(t *testing.T) {
	soon := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), 400*time.Millisecond)
	}
	replies, err := stopDuringBatch(t, soon)
	for _, r := range replies {
		if r.status < 500 && err == nil {
			t.Errorf("a member got %d %s, and Stop returned no error", r.status, r.body)
		}
	}
}
