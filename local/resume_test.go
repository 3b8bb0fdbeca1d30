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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/timed"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// startResumableZone starts a zone of two simulated workers that answer a prompt alike.
func startResumableZone(t *testing.T, change func(*local.Config)) (a *local.Agent, workers [2]*gpu.Server, reg *prometheus.Registry) {
	t.Helper()
	a = startAgent(t, func(c *local.Config) {
		for i := range workers {
			workers[i] = startSimWorker(t, 0, 0)
			c.Workers = append(c.Workers, discover.Worker{Name: fmt.Sprintf("w%d", i+1), URL: workers[i].URL(), GPU: "H100"})
		}
		reg = c.Registry
		if change != nil {
			change(c)
		}
	})
	testkit.Eventually(t, "both workers ready", func() bool { return countReady(a) == 2 })
	return a, workers, reg
}

// streamAnswer is a stream as a client puts it together.
type streamAnswer struct {
	text, finish, failure          string
	idCount, roleCount, doneCount  int
	promptTokens, completionTokens int
	route, resumed                 string
}

func readStream(t *testing.T, url, path, body string) (a streamAnswer) {
	t.Helper()
	resp, err := testClient.Post(url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d, %v: %s", resp.StatusCode, err, text)
	}
	ids := map[string]bool{}
	for ev := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(ev, "data: ")
		if data == "[DONE]" {
			a.doneCount++
			continue
		}
		var o struct {
			ID      string
			Choices []struct {
				Delta        struct{ Role, Content string }
				Text         string
				FinishReason string `json:"finish_reason"`
			}
			Usage struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			}
			Error struct{ Code any }
		}
		if err := json.Unmarshal([]byte(data), &o); err != nil || !ok {
			t.Fatalf("a torn event: %q", ev)
		}
		for _, c := range o.Choices {
			a.text += c.Delta.Content + c.Text
			a.finish += c.FinishReason
			if c.Delta.Role != "" {
				a.roleCount++
			}
		}
		if o.Error.Code != nil {
			a.failure = fmt.Sprint(o.Error.Code)
			continue
		}
		a.promptTokens, a.completionTokens = o.Usage.Prompt, o.Usage.Completion
		ids[o.ID] = true
	}
	a.idCount, a.route, a.resumed = len(ids), resp.Header.Get(forward.HeaderRoute), resp.Trailer.Get(forward.HeaderResumed)
	return a
}

// TestStreamResumesOnAnotherWorker: a worker dies in the middle of its answer, and only the trailer shows it to the client.
func TestStreamResumesOnAnotherWorker(t *testing.T) {
	for _, c := range []struct {
		name, path, body string
		fault            gpu.Chaos
	}{
		{"chat", "/v1/chat/completions", `{"model":%q,"messages":[{"role":"user","content":"say a few things"}],"max_tokens":60,"stream":true,"stream_options":{"include_usage":true},"temperature":0}`, gpu.Chaos{Mode: gpu.ModeDieMidstream, AfterTokens: 9}},
		{"completions", "/v1/completions", `{"model":%q,"prompt":"say a few things","max_tokens":40,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`, gpu.Chaos{Mode: gpu.ModeDieMidstream, AfterTokens: 1}},
		{"natural end", "/v1/chat/completions", `{"model":%q,"messages":[{"role":"user","content":"say it all"}],"stream":true,"stream_options":{"include_usage":true}}`, gpu.Chaos{Mode: gpu.ModeDieMidstream, AfterTokens: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, workers, reg := startResumableZone(t, nil)
			body := fmt.Sprintf(c.body, baseModel)
			want := readStream(t, workers[0].URL(), c.path, body)
			var got streamAnswer
			testkit.Eventually(t, "a stream met its death", func() bool {
				got = readStream(t, "http://"+a.Addr().String(), c.path, body)
				for i, w := range workers { // who has the prompt cached is likely to be chosen again
					fault := gpu.Chaos{Mode: gpu.ModeOK}
					if strings.HasSuffix(got.route, fmt.Sprint("w", i+1)) {
						fault = c.fault
					}
					if err := w.SetChaos(fault); err != nil {
						t.Fatal(err)
					}
				}
				return got.resumed != ""
			})
			if got.resumed != "local" || got.failure != "" || got.text != want.text || got.finish != want.finish || got.idCount != 1 || got.doneCount != 1 || got.roleCount != want.roleCount {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
			if got.promptTokens != want.promptTokens || got.completionTokens != want.completionTokens {
				t.Errorf("usage is %d and %d, want %d and %d", got.promptTokens, got.completionTokens, want.promptTokens, want.completionTokens)
			}
			if n, err := testutil.GatherAndCount(reg, "spillway_local_resumes_total"); err != nil || n != 1 {
				t.Errorf("%d resumes counted, %v", n, err)
			}
		})
	}
}

// What a tenant forbids, what the engine cannot do and what is no plain text ends with an error event, as ever.
func TestUnresumableStreamsAreNotResumed(t *testing.T) {
	no := false
	plain := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"x"}],"max_tokens":30,"ignore_eos":true,"stream":true}`, baseModel)
	for _, c := range []struct {
		name, body, reason string
		change             func(*local.Config)
	}{
		{"stop string", strings.Replace(plain, "{", `{"stop":["."],`, 1), "stop", nil},
		{"forbidden", plain, "forbidden", func(c *local.Config) {
			c.Spec = &spec.Spec{Tenants: []spec.Tenant{{Name: spec.DefaultTenant, Resume: &no}}}
		}},
		{"too long", plain, "too_long", func(c *local.Config) { c.Spec = &spec.Spec{Routing: spec.Routing{ResumeText: new(8)}} }},
		{"another engine", plain, "engine", func(c *local.Config) {
			for i := range c.Workers {
				c.Workers[i].Engine = "openai"
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, workers, reg := startResumableZone(t, c.change)
			for _, w := range workers {
				if err := w.SetChaos(gpu.Chaos{Mode: gpu.ModeDieMidstream, AfterTokens: 4}); err != nil {
					t.Fatal(err)
				}
			}
			got := readStream(t, "http://"+a.Addr().String(), "/v1/chat/completions", c.body)
			if got.failure != "upstream_lost" || got.resumed != "" || len(got.text) != 16 {
				t.Errorf("got %+v", got)
			}
			want := fmt.Sprintf(`# HELP spillway_local_resumes_total Streams whose worker failed, by outcome (resumed, ended: only the end was missing, failed, not: not attempted) and the reason if not resumed.
# TYPE spillway_local_resumes_total counter
spillway_local_resumes_total{outcome="not",reason=%q} 1
`, c.reason)
			if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_local_resumes_total"); err != nil {
				t.Error(err)
			}
		})
	}
}

// An engine that runs out of memory ends its streams with error events. They go on elsewhere all the same.
func TestEngineErrorEventIsResumedElsewhere(t *testing.T) {
	a, workers, _ := startResumableZone(t, nil)
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"long"}],"max_tokens":400,"ignore_eos":true,"stream":true}`, baseModel)
	want := readStream(t, workers[0].URL(), "/v1/chat/completions", body)
	done := make(chan streamAnswer)
	go func() { done <- readStream(t, "http://"+a.Addr().String(), "/v1/chat/completions", body) }()
	var busy *gpu.Server
	testkit.Eventually(t, "it runs", func() bool {
		for _, w := range workers {
			if w.Gauges().Running > 0 {
				busy = w
			}
		}
		return busy != nil
	})
	if err := busy.SetChaos(gpu.Chaos{Mode: gpu.ModeOOM}); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.text != want.text || got.failure != "" || got.completionTokens != 0 {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// Nothing of a client that has left is gone on with.
func TestAbandonedStreamIsNotResumed(t *testing.T) {
	a, workers, _ := startResumableZone(t, nil)
	before := workers[0].TakenRequests() + workers[1].TakenRequests()
	ctx, leave := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(fmt.Sprintf(
		`{"model":%q,"messages":[{"role":"user","content":"x"}],"max_tokens":2000,"ignore_eos":true,"stream":true}`, baseModel)))
	resp, err := testClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = resp.Body.Read(make([]byte, 100))
	leave()
	_ = resp.Body.Close()
	testkit.Eventually(t, "both workers idle", func() bool { return workers[0].Gauges().Running+workers[1].Gauges().Running == 0 })
	if n := workers[0].TakenRequests() + workers[1].TakenRequests() - before; n != 1 {
		t.Errorf("%d requests were made of one", n)
	}
}

// TestCutStreamWaitsForRestartingWorker: the other worker has just been restarted and shows nothing yet when a stream is cut. The
// stream goes on there once it is ready, because what engine it is was remembered. Behind a gateway the zone waits too.
func TestCutStreamWaitsForRestartingWorker(t *testing.T) {
	for _, gateway := range []bool{false, true} {
		t.Run(fmt.Sprintf("behind a gateway %v", gateway), func(t *testing.T) { waitForRestart(t, gateway, true, time.Minute, 0) })
	}
}

// TestAStreamIsHandedBackToTheGateway: a zone waits a short time at most for a worker that is down, and not past the deadline of
// the request. It then ends the stream for want of a place, and not of an engine, so that its gateway goes on elsewhere.
func TestAStreamIsHandedBackToTheGateway(t *testing.T) {
	began := time.Now()
	waitForRestart(t, true, false, 50*time.Millisecond, 0)
	timed.AssertWithin(t, "the wait behind a gateway", time.Since(began), 9*time.Second)
	began = time.Now()
	waitForRestart(t, true, false, time.Minute, 2*time.Second)
	timed.AssertWithin(t, "the wait until the deadline", time.Since(began), 9*time.Second)
}

// waitForRestart cuts a stream while the only other worker is away, which may come back. 0: the request has no deadline.
func waitForRestart(t *testing.T, gateway, comes bool, wait, deadline time.Duration) {
	var away atomic.Bool
	cut := make(chan struct{})
	hit := make(chan struct{}, 1)
	const event = `data: {"id":"a","choices":[{"index":0,"delta":{"content":"`
	worker := func(chat http.HandlerFunc, away *atomic.Bool) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case away.Load():
				w.WriteHeader(http.StatusServiceUnavailable)
			case r.URL.Path == "/v1/models":
				_, _ = io.WriteString(w, `{"data":[{"id":"m","owned_by":"vllm"}]}`)
			case r.Method == http.MethodPost && r.URL.Path == "/v1/chat/completions":
				chat(w, r)
			}
		}))
		t.Cleanup(s.Close)
		return s
	}
	dies := worker(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event+`one "},"finish_reason":null}]}`+"\n\n")
		w.(http.Flusher).Flush()
		hit <- struct{}{}
		<-cut
		panic(http.ErrAbortHandler)
	}, new(atomic.Bool))
	goesOn := worker(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte("continue_final_message")) {
			t.Errorf("the other worker is asked %s", body)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event+`two"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	}, &away)
	one := discover.Worker{Name: "w1", URL: dies.URL, Weight: 1}
	two := discover.Worker{Name: "w2", URL: goesOn.URL, Weight: 1, Models: []string{"m"}}
	p := newGatewayHarness(t)
	reg := telemetry.NewRegistry("local", "a", "test")
	a := startAgent(t, func(c *local.Config) {
		if gateway {
			p.joinGateway(c)
		}
		c.Workers, c.Registry = []discover.Worker{one, two}, reg
	})
	a.SetResumeWait(wait)
	testkit.Eventually(t, "both are ready", func() bool { return countReady(a) == 2 })
	away.Store(true)
	testkit.Eventually(t, "one is away", func() bool { return countReady(a) == 1 })
	two.Weight = 2 // declared again while it is away
	a.SetWorkers([]discover.Worker{one, two})
	done := make(chan string)
	go func() {
		const body = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`
		var text string
		if gateway {
			_, text, _ = p.postFromGateway(p.gateway, a, forward.Hop{RequestID: "r", Tenant: "acme", RetriesLeft: 1, Deadline: deadline}, body)
		} else {
			_, text = postChat(t, a, body)
		}
		done <- text
	}()
	<-hit
	close(cut)
	testkit.Eventually(t, "the loss is noticed", func() bool { return workerStatus(a, "w1").InFlight == 0 })
	if !comes {
		text := <-done
		if !strings.Contains(text, "one ") || !strings.Contains(text, "error") {
			t.Errorf("the gateway read %q", text)
		}
		const name = "spillway_local_resumes_total"
		want := "# HELP " + name + " Streams whose worker failed, by outcome (resumed, ended: only the end was missing, failed, not: not attempted) and the reason if not resumed.\n# TYPE " + name + " counter\n" + name + `{outcome="not",reason="no_place"} 1` + "\n"
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), name); err != nil {
			t.Error(err)
		}
		return
	}
	away.Store(false)
	if text := <-done; strings.Contains(text, "error") || !strings.Contains(text, "one ") || !strings.Contains(text, "two") {
		t.Errorf("the client read %q", text)
	}
}

// TestNoRetryAfterFirstByte: a worker dies in the middle of an answer. The request is not sent to another
// worker: the client receives an error event at the end of the part, which cannot be taken for a whole answer.
func TestNoRetryAfterFirstByte(t *testing.T) {
	w1, w2 := newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2")
	a := startAgent(t, nil, w1, w2)
	w1.setMode("die_midstream")
	w2.setMode("die_midstream")
	for i := range 4 {
		before := w1.served.Load() + w2.served.Load()
		_, text := postChat(t, a, strings.Replace(unresumableChat, `"hi"`, fmt.Sprintf("\"hi %d\"", i), 1))
		if n := w1.served.Load() + w2.served.Load() - before; n != 1 {
			t.Errorf("the request was sent %d times", n)
		}
		if !strings.Contains(text, `"error"`) || strings.Count(text, "content") != 2 {
			t.Errorf("a cut stream ends with %q", text[max(0, len(text)-200):])
		}
	}
}

// startPoisonableZone starts a zone of n workers that die on requests which contain "poison". They close the
// connection before the answer, or in a stream after its first event. deaths counts them.
func startPoisonableZone(t *testing.T, n int) (url string, deaths func() int64) {
	t.Helper()
	var mu sync.Mutex
	var dead int64
	a, _ := startZone(t, n, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		stream := bytes.Contains(body, []byte(`"stream":true`))
		if stream {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"id":"a","choices":[{"index":0,"delta":{"content":"one "},"finish_reason":null}]}`+"\n\n")
			w.(http.Flusher).Flush()
		}
		switch {
		case bytes.Contains(body, []byte("poison")):
			mu.Lock()
			dead++
			mu.Unlock()
			panic(http.ErrAbortHandler)
		case bytes.Contains(body, []byte("memory")):
			mu.Lock()
			dead++
			mu.Unlock()
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"error":{"message":"CUDA error: device lost"}}`)
		case stream:
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
		default:
			_, _ = io.WriteString(w, `{"choices":[]}`)
		}
	})
	return "http://" + a.Addr().String(), func() int64 { mu.Lock(); defer mu.Unlock(); return dead }
}

// TestNoRequestKillsMoreThanTwoWorkers: one client makes three tries against six workers. The second death is the
// last, and the answer makes the client's library stop. Other requests are served.
func TestNoRequestKillsMoreThanTwoWorkers(t *testing.T) {
	for name, body := range map[string]string{
		"whole":         `{"model":"m","messages":[{"role":"user","content":"poison"}]}`,
		"stream":        `{"model":"m","stream":true,"messages":[{"role":"user","content":"poison"}]}`,
		"final stream":  `{"model":"m","stream":true,"stop":["x"],"messages":[{"role":"user","content":"poison"}]}`,
		"broken engine": `{"model":"m","messages":[{"role":"user","content":"memory"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			url, deaths := startPoisonableZone(t, 6)
			send := func(body string) (*http.Response, string) {
				resp, err := testClient.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				text, _ := io.ReadAll(resp.Body)
				return resp, string(text)
			}
			for range 3 {
				send(body)
			}
			resp, text := send(body)
			if resp.StatusCode != http.StatusUnprocessableEntity || resp.Header.Get("X-Should-Retry") != "false" || !strings.Contains(text, `"request_kills_workers"`) {
				t.Errorf("%d %v %s", resp.StatusCode, resp.Header, text)
			}
			if n := deaths(); n > 2 {
				t.Errorf("%d workers died under one request, want 2 at most", n)
			}
			if resp, text := send(`{"model":"m","messages":[{"role":"user","content":"hello"}]}`); resp.StatusCode != http.StatusOK {
				t.Errorf("another request is answered %d %s", resp.StatusCode, text)
			}
		})
	}
}

// TestStreamEndsAfterSecondWorkerDeath: an event in the stream tells the client not to retry.
func TestStreamEndsAfterSecondWorkerDeath(t *testing.T) {
	url, deaths := startPoisonableZone(t, 4)
	a := readStream(t, url, "/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"poison"}]}`)
	if a.failure != "request_kills_workers" || deaths() != 2 {
		t.Errorf("%+v after %d deaths", a, deaths())
	}
}

// TestSharedWorkerDeathCondemnsNoRequest: three requests are in flight when the worker dies. They are retried, and
// retried again after another such death.
func TestSharedWorkerDeathCondemnsNoRequest(t *testing.T) {
	die := make(chan struct{})
	begun := make(chan struct{}, 16)
	var first sync.Once
	var victim string
	a, calls := startZone(t, 1, func(w http.ResponseWriter, r *http.Request) {
		first.Do(func() { victim = r.Host })
		select {
		case <-die:
			_, _ = io.WriteString(w, `{"choices":[]}`)
		default:
			begun <- struct{}{}
			<-die
			panic(http.ErrAbortHandler)
		}
	})
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			postChat(t, a, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"request %d"}]}`, i))
		})
	}
	for range 3 {
		<-begun
	}
	close(die)
	all.Wait()
	testkit.Eventually(t, "the worker is used again", func() bool { return countReady(a) == 1 })
	before := sumCalls(calls)
	for i := range 3 {
		if resp, text := postChat(t, a, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"request %d"}]}`, i)); resp.StatusCode != http.StatusOK {
			t.Errorf("request %d of many under which %s died: %d %s", i, victim, resp.StatusCode, text)
		}
	}
	if sumCalls(calls)-before != 3 {
		t.Errorf("3 requests were sent %d times", sumCalls(calls)-before)
	}
}

// TestRefusalOfADeadEngineReportsTheDeath: the zone has no retry left, and its answer reports the death to the
// gateway.
func TestRefusalOfADeadEngineReportsTheDeath(t *testing.T) {
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusInternalServerError} {
		p := newGatewayHarness(t)
		worker := newHandlerWorker(t, "w1", func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if bytes.Contains(body, []byte("prompt")) { // the warm-up
				return
			}
			http.Error(w, `{"error":{"message":"EngineDeadError"}}`, status)
		})
		a := startAgentWith(t, p.joinGateway, worker)
		resp, text, err := p.postFromGateway(p.gateway, a, forward.Hop{Tenant: "acme"}, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
		if err != nil {
			t.Fatal(err)
		}
		reported := resp.Header.Get(forward.HeaderDeaths) + resp.Trailer.Get(forward.HeaderDeaths)
		if resp.StatusCode != status || reported != "1" || !strings.Contains(text, "EngineDeadError") {
			t.Errorf("%d %s %v: %q deaths", resp.StatusCode, text, resp.Header, reported)
		}
	}
}
