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
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// embedder is an engine for embeddings and inferences that counts its calls. A vector is the input's own text in numbers.
// It refuses a call with an input "poison", breaks on "bomb", and answers one result too few on "short" in company.
type embedder struct {
	*httptest.Server
	calls, inputs atomic.Int64
	hold          atomic.Pointer[chan struct{}] // while set, answers wait for it
	most          int                           // inputs it takes in one call; 0 is any number
}

func newEmbedder(t *testing.T) *embedder {
	e := &embedder{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"bge","max_model_len":512},{"id":"org/resnet","max_model_len":512}]}`)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "vllm:num_requests_running{engine=\"0\"} 0\nvllm:num_requests_waiting{engine=\"0\"} 0\nvllm:kv_cache_usage_perc 0\n")
	})
	mux.HandleFunc("POST /v1/embeddings", e.embed)
	mux.HandleFunc("POST /v2/models/{model}/infer", e.infer)
	e.Server = httptest.NewServer(mux)
	t.Cleanup(e.Close)
	return e
}

// block makes answers wait until the returned function is called.
func (e *embedder) block() (release func()) {
	gate := make(chan struct{})
	e.hold.Store(&gate)
	return func() {
		e.hold.Store(nil)
		close(gate)
	}
}

func (e *embedder) wait(r *http.Request) {
	if gate := e.hold.Load(); gate != nil {
		select {
		case <-*gate:
		case <-r.Context().Done():
		}
	}
}

func (e *embedder) embed(w http.ResponseWriter, r *http.Request) {
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
	e.wait(r)
	if e.most > 0 && len(list) > e.most {
		refuse(w, 422, "too many inputs")
		return
	}
	var data []string
	for i, text := range list {
		switch {
		case text == "poison":
			refuse(w, 400, "input poison is refused, and so are its neighbours")
			return
		case text == "bomb":
			refuse(w, 500, "input bomb broke me")
			return
		case text == "short" && len(list) > 1:
			continue
		}
		vector, _ := json.Marshal([]int{len(text), int(text[0]), int(text[len(text)-1])})
		data = append([]string{fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":%s}`, i, vector)}, data...) // last first
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"object":"list","data":[%s],"model":"bge","usage":{"prompt_tokens":%d,"total_tokens":%d}}`, strings.Join(data, ","), 10*len(list), 10*len(list))
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"error":{"message":%q}}`, message)
}

func (e *embedder) infer(w http.ResponseWriter, r *http.Request) {
	var req struct {
		ID     string
		Inputs []struct {
			Shape []int
			Data  []float64
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		refuse(w, 400, err.Error())
		return
	}
	e.calls.Add(1)
	e.inputs.Add(int64(req.Inputs[0].Shape[0]))
	e.wait(r)
	for i := range req.Inputs[0].Data {
		req.Inputs[0].Data[i] *= 2
	}
	out, _ := json.Marshal(req.Inputs[0].Data)
	shape, _ := json.Marshal(req.Inputs[0].Shape)
	_, _ = fmt.Fprintf(w, `{"model_name":%q,"id":%q,"outputs":[{"name":"y","datatype":"FP32","shape":%s,"data":%s}]}`, r.PathValue("model"), req.ID, shape, out)
}

// startMerging runs an agent over one embedder with a long delay, so that only what the test does sends a call.
func startMerging(t *testing.T, e *embedder, reg *prometheus.Registry, change func(*spec.Batching)) *local.Agent {
	t.Helper()
	s := &spec.Spec{}
	s.Routing.Batch = spec.Batching{MaxDelay: spec.Duration(10 * time.Second), InferModels: []string{"org/resnet"}}
	if change != nil {
		change(&s.Routing.Batch)
	}
	return start(t, func(c *local.Config) {
		c.Spec, c.Workers, c.Registry = s, []discover.Worker{{Name: "w1", URL: e.URL, GPU: "L4"}}, reg
	}, &vllm{name: "w1", Server: e.Server})
}

type reply struct {
	status int
	text   string
	head   http.Header
}

// ask posts a body and returns its answer in a channel.
func ask(ctx context.Context, a *local.Agent, path, body string) <-chan reply {
	out := make(chan reply, 1)
	go func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.Addr().String()+path, strings.NewReader(body))
		if err != nil {
			out <- reply{text: err.Error()}
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			out <- reply{text: err.Error()}
			return
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			text = []byte(err.Error())
		}
		out <- reply{resp.StatusCode, string(text), resp.Header}
	}()
	return out
}

const embeddings = "/v1/embeddings"

func input(text string) string { return `{"model":"bge","input":"` + text + `"}` }

// wantVectors holds an answer to what the texts' own vectors are.
func wantVectors(t *testing.T, r reply, texts ...string) {
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
	if err := json.Unmarshal([]byte(r.text), &got); err != nil || r.status != 200 || len(got.Data) != len(texts) {
		t.Errorf("%d %s for %q (%v)", r.status, r.text, texts, err)
		return
	}
	for i, text := range texts {
		if d := got.Data[i]; d.Index != i || fmt.Sprint(d.Embedding) != fmt.Sprint([]int{len(text), int(text[0]), int(text[len(text)-1])}) {
			t.Errorf("%q is given %+v", text, d)
		}
	}
	if got.Usage.Prompt == 0 {
		t.Errorf("%q costs nothing: %s", texts, r.text)
	}
}

// behind asks for the bodies while a call holds the engine, waits until all are on the bus, and lets the engine go on.
func behind(t *testing.T, e *embedder, a *local.Agent, path string, bodies ...string) []reply {
	t.Helper()
	before := e.calls.Load()
	release := e.block()
	first := ask(t.Context(), a, path, bodies[0])
	eventually(t, "the engine busy", func() bool { return e.calls.Load() == before+1 })
	var later []<-chan reply
	for _, b := range bodies[1:] {
		later = append(later, ask(t.Context(), a, path, b))
	}
	eventually(t, "everybody on the bus", func() bool { return aboard(a) == len(bodies) })
	release()
	out := []reply{<-first}
	for _, c := range later {
		out = append(out, <-c)
	}
	return out
}

func aboard(a *local.Agent) int { return a.Riding("bge") + a.Riding("org/resnet") }

func TestEmbeddingsShareACallWhileTheEngineIsBusy(t *testing.T) {
	e, reg := newEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startMerging(t, e, reg, nil)
	bodies := []string{input("first")}
	for i := range 40 {
		bodies = append(bodies, input(fmt.Sprintf("text number %d", i)))
	}
	bodies = append(bodies, `{"model":"bge","input":["two","texts"]}`)
	replies := behind(t, e, a, embeddings, bodies...)
	wantVectors(t, replies[0], "first")
	for i := range 40 {
		wantVectors(t, replies[1+i], fmt.Sprintf("text number %d", i))
	}
	wantVectors(t, replies[41], "two", "texts")
	if e.calls.Load() != 2 || e.inputs.Load() != 43 {
		t.Errorf("%d calls with %d inputs, want 2 with 43", e.calls.Load(), e.inputs.Load())
	}
	ids := map[string]bool{}
	for _, r := range replies {
		ids[r.head.Get("X-Request-Id")] = true
		if r.head.Get("X-Spillway-Route") != "us/us-a/w1" || r.head.Get("Content-Type") != "application/json" {
			t.Fatalf("head is %v", r.head)
		}
	}
	if len(ids) != len(replies) {
		t.Errorf("%d request ids for %d requests", len(ids), len(replies))
	}
	want := `# HELP spillway_local_batch_calls_total Calls made for requests that may be merged, by why each was made when it was.
# TYPE spillway_local_batch_calls_total counter
spillway_local_batch_calls_total{model="bge",reason="idle"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_local_batch_calls_total"); err != nil {
		t.Error(err)
	}
	eventually(t, "the answers' tokens counted", func() bool {
		return testutil.GatherAndCompare(reg, strings.NewReader(`# HELP spillway_local_tokens_total Tokens of answers by model, class and kind (prompt, of which cached, and completion); source tells what engines stated from what was estimated.
# TYPE spillway_local_tokens_total counter
spillway_local_tokens_total{class="standard",kind="prompt",model="bge",source="stated"} 430
`), "spillway_local_tokens_total") == nil
	})
}

func TestItemThatTheEngineRefusesDoesNotFailItsNeighbours(t *testing.T) {
	e, reg := newEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startMerging(t, e, reg, nil)
	r := behind(t, e, a, embeddings, input("first"), input("well"), input("poison"), input("also"))
	wantVectors(t, r[1], "well")
	wantVectors(t, r[3], "also")
	if r[2].status != 400 || !strings.Contains(r[2].text, "poison") {
		t.Errorf("the guilty one got %d %s", r[2].status, r[2].text)
	}
	if e.calls.Load() != 1+1+3 {
		t.Errorf("%d calls, want 5: one, one for three, and each of them alone", e.calls.Load())
	}
	want := `# HELP spillway_local_batch_splits_total Merged calls whose requests were sent again, each alone, by what came of the call: refused, or an answer that did not add up.
# TYPE spillway_local_batch_splits_total counter
spillway_local_batch_splits_total{cause="refused",model="bge"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_local_batch_splits_total"); err != nil {
		t.Error(err)
	}
	r = behind(t, e, a, embeddings, input("first"), input("short"), input("other"))
	wantVectors(t, r[1], "short")
	wantVectors(t, r[2], "other")
}

func TestFailureOfACallTellsNobodyWhatOthersSent(t *testing.T) {
	e, reg := newEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startMerging(t, e, reg, nil)
	r := behind(t, e, a, embeddings, input("first"), input("well"), input("bomb"))
	for _, got := range r[1:] {
		if got.status != 500 || strings.Contains(got.text, "bomb") || !strings.Contains(got.text, "upstream_error") {
			t.Errorf("%d %s", got.status, got.text)
		}
	}
	if e.calls.Load() != 2 {
		t.Errorf("%d calls: a computed 5xx is never tried again", e.calls.Load())
	}
}

func TestIdenticalRequestsShareOneAnswer(t *testing.T) {
	e, reg := newEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startMerging(t, e, reg, nil)
	r := behind(t, e, a, embeddings, input("same"), input("same"), input("other"), input("same"), input("other"))
	for i, text := range []string{"same", "same", "other", "same", "other"} {
		wantVectors(t, r[i], text)
	}
	if e.calls.Load() != 2 || e.inputs.Load() != 2 {
		t.Errorf("%d calls with %d inputs, want 2 with 2", e.calls.Load(), e.inputs.Load())
	}
	want := `# HELP spillway_local_batch_shared_total Requests that were given the answer to an identical one.
# TYPE spillway_local_batch_shared_total counter
spillway_local_batch_shared_total{model="bge"} 3
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_local_batch_shared_total"); err != nil {
		t.Error(err)
	}
}

func TestRequestsThatDifferInParametersAreCalledApart(t *testing.T) {
	e, reg := newEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startMerging(t, e, reg, func(b *spec.Batching) { b.MaxDelay = spec.Duration(time.Millisecond) })
	with := func(more string) string { return `{"model":"bge","input":"x",` + more + `}` }
	r := behind(t, e, a, embeddings, input("first"), with(`"dimensions":2`), with(`"dimensions":3`), with(`"encoding_format":"float"`), with(`"user":"u"`))
	for _, got := range r[1:] {
		wantVectors(t, got, "x")
	}
	if e.calls.Load() != 5 {
		t.Errorf("%d calls, want 5", e.calls.Load())
	}
}

func TestMergingCanBeSwitchedOff(t *testing.T) {
	e, reg := newEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startMerging(t, e, reg, func(b *spec.Batching) { b.Enabled = new(bool) })
	release := e.block()
	one, two := ask(t.Context(), a, embeddings, input("same")), ask(t.Context(), a, embeddings, input("same"))
	eventually(t, "two calls", func() bool { return e.calls.Load() == 2 })
	release()
	wantVectors(t, <-one, "same")
	wantVectors(t, <-two, "same")
}

func TestRiderThatLeavesHoldsNobodyUp(t *testing.T) {
	e, reg := newEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startMerging(t, e, reg, nil)
	release := e.block()
	busy, leaveCall := context.WithCancel(t.Context())
	first := ask(busy, a, embeddings, input("leaves in mid-call"))
	eventually(t, "the engine busy", func() bool { return e.calls.Load() == 1 })
	waiting, leaveLine := context.WithCancel(t.Context())
	second := ask(waiting, a, embeddings, input("leaves while it waits"))
	stays := ask(t.Context(), a, embeddings, input("stays"))
	eventually(t, "three on the bus", func() bool { return aboard(a) == 3 })
	leaveLine()
	<-second
	eventually(t, "two on the bus", func() bool { return aboard(a) == 2 })
	leaveCall() // nobody waits for the call any more: it is given up, and the next one made
	<-first
	eventually(t, "the next call", func() bool { return e.calls.Load() == 2 })
	release()
	wantVectors(t, <-stays, "stays")
	if e.inputs.Load() != 2 {
		t.Errorf("%d inputs were sent, want 2: nobody asks for one that has left", e.inputs.Load())
	}
}

func TestDeadlineOfOneRiderIsItsOwn(t *testing.T) {
	e, reg := newEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startMerging(t, e, reg, nil)
	release := e.block()
	first := ask(t.Context(), a, embeddings, input("first"))
	eventually(t, "the engine busy", func() bool { return e.calls.Load() == 1 })
	patient := ask(t.Context(), a, embeddings, input("patient"))
	req, _ := http.NewRequest(http.MethodPost, "http://"+a.Addr().String()+embeddings, strings.NewReader(input("hasty")))
	req.Header.Set("X-Spillway-Deadline-Ms", "20")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 504 {
		t.Errorf("the hasty one got %d", resp.StatusCode)
	}
	release()
	wantVectors(t, <-first, "first")
	wantVectors(t, <-patient, "patient")
}

func TestEngineThatTakesFewInputsIsLearned(t *testing.T) {
	e, reg := newEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	e.most = 2
	a := startMerging(t, e, reg, func(b *spec.Batching) { b.MaxDelay = spec.Duration(time.Millisecond) })
	for range 4 {
		bodies := []string{input("first")}
		for i := range 4 {
			bodies = append(bodies, input(fmt.Sprintf("text %d", i)))
		}
		for i, r := range behind(t, e, a, embeddings, bodies...)[1:] {
			wantVectors(t, r, fmt.Sprintf("text %d", i))
		}
	}
	want := `# HELP spillway_local_batch_splits_total Merged calls whose requests were sent again, each alone, by what came of the call: refused, or an answer that did not add up.
# TYPE spillway_local_batch_splits_total counter
spillway_local_batch_splits_total{cause="refused",model="bge"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_local_batch_splits_total"); err != nil {
		t.Error(err)
	}
}

func TestManyTextsAreNotOneLongPrompt(t *testing.T) {
	e, reg := newEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startMerging(t, e, reg, nil)
	var list bytes.Buffer
	for i := range 50 { // of 100 tokens each, for a model that takes 512
		if i > 0 {
			list.WriteByte(',')
		}
		list.WriteString(`"` + strings.Repeat("word", 100) + `"`)
	}
	if r := <-ask(t.Context(), a, embeddings, `{"model":"bge","input":[`+list.String()+`]}`); r.status != 200 {
		t.Errorf("%d %.200s", r.status, r.text)
	}
	if r := <-ask(t.Context(), a, embeddings, input(strings.Repeat("word", 20_000))); r.status != 400 || !strings.Contains(r.text, "context_too_long") {
		t.Errorf("one long text: %d %.200s", r.status, r.text)
	}
}

func TestInferencesShareACall(t *testing.T) {
	e, reg := newEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startMerging(t, e, reg, nil)
	body := func(id string, n float64) string {
		return fmt.Sprintf(`{"id":%q,"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[%g,%g]}]}`, id, n, n+1)
	}
	const path = "/v2/models/org%2Fresnet/infer"
	r := behind(t, e, a, path, body("a", 1), body("b", 10), body("c", 20))
	for i, want := range []string{`"id":"a","outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"data":[2,4]}]`, `"id":"b","outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"data":[20,22]}]`, `"id":"c","outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"data":[40,42]}]`} {
		if r[i].status != 200 || !strings.Contains(r[i].text, want) {
			t.Errorf("%d %s, want %s", r[i].status, r[i].text, want)
		}
	}
	if e.calls.Load() != 2 || e.inputs.Load() != 3 {
		t.Errorf("%d calls with %d rows, want 2 with 3", e.calls.Load(), e.inputs.Load())
	}
	// A model whose first dimension is not said to be a batch is never merged.
	release := e.block()
	one, two := ask(t.Context(), a, "/v2/models/bge/infer", body("a", 1)), ask(t.Context(), a, "/v2/models/bge/infer", body("b", 1))
	eventually(t, "two calls more", func() bool { return e.calls.Load() == 4 })
	release()
	if x, y := <-one, <-two; x.status != 200 || y.status != 200 {
		t.Errorf("%v %v", x, y)
	}
	if x := <-ask(t.Context(), a, "/v2/models/none/infer", body("a", 1)); x.status != 404 {
		t.Errorf("unknown model: %v", x)
	}
}

// stopUnder stops an instance while three ride and their call hangs, and is what they were told.
func stopUnder(t *testing.T, within func() (context.Context, context.CancelFunc)) (told []reply, err error) {
	t.Helper()
	e, reg := newEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startMerging(t, e, reg, nil)
	release := e.block()
	defer release()
	var riders []<-chan reply
	for i := range 3 {
		riders = append(riders, ask(context.Background(), a, embeddings, input(fmt.Sprint("text", i))))
	}
	eventually(t, "all on the bus", func() bool { return aboard(a) == 3 })
	ctx, cancel := within()
	defer cancel()
	err = a.Stop(ctx)
	for _, r := range riders {
		told = append(told, <-r)
	}
	return told, err
}

func TestStopWaitsForNobodyThatRides(t *testing.T) {
	// With no deadline to come there is no last call before it: whoever has no answer when the time is over gets none.
	over := func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return ctx, cancel
	}
	if told, err := stopUnder(t, over); err == nil {
		t.Errorf("answers were cut short and nobody said so: %v", told)
	}
}

// Shortly before its deadline a stop hands back what has no answer. Who is told nothing even so is spoken of.
func TestStopHandsBackWhoRides(t *testing.T) {
	soon := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), 400*time.Millisecond)
	}
	told, err := stopUnder(t, soon)
	for _, r := range told {
		if r.status < 500 && err == nil {
			t.Errorf("somebody was told %d %s, and nobody said that answers were cut short", r.status, r.text)
		}
	}
}
