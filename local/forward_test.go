package local_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/timed"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/queue"
)

// TestURLQueryReachesWorkerUnchanged: some engines require a query (?api-version=...), which only they can interpret.
func TestURLQueryReachesWorkerUnchanged(t *testing.T) {
	asked := make(chan string, 1)
	a := startAgentWith(t, nil, newChatWorker(t, "w1", func(w http.ResponseWriter, r *http.Request) {
		asked <- r.RequestURI
		_, _ = io.WriteString(w, `{"choices":[]}`)
	}))
	for _, query := range []string{"", "?api-version=2024-10-21", "?a=1&a=2&b", "?x=%2Fy%20z+%C3%A9&%zz=;", "?q=http://other/v1"} {
		resp, err := testClient.Post("http://"+a.Addr().String()+"/v1/chat/completions"+query, "application/json", strings.NewReader(`{"model":"m","messages":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := <-asked; resp.StatusCode != http.StatusOK || got != "/v1/chat/completions"+query {
			t.Errorf("query %q reached the worker as %q, and the answer was %d", query, got, resp.StatusCode)
		}
	}
}

// TestWorkerWeightBoundsAreTheSameEverywhere: the config and the zone accept the same weights.
func TestWorkerWeightBoundsAreTheSameEverywhere(t *testing.T) {
	for _, c := range []struct {
		weight string
		taken  bool
	}{{"0.001", true}, {"1000", true}, {"1000.5", false}, {"0", false}, {"-1", false}, {".inf", false}, {".nan", false}} {
		list := fmt.Sprintf("workers:\n  - {name: w1, url: \"http://10.0.1.21:8000\", weight: %s}\n", c.weight)
		_, err := config.Decode("local.yaml", []byte("role: local\nname: l1\nregion: fra\nzone: a\nhttp: {listen: \"127.0.0.1:0\", plain: true}\n"+list))
		_, err2 := discover.DecodeWorkers("workers.yaml", []byte(list))
		if (err == nil) != c.taken || (err2 == nil) != c.taken {
			t.Errorf("weight %s: config error %v, workers file error %v", c.weight, err, err2)
		}
	}
}

// specWithAlias is a spec in which "the-usual-one" is model m, of which an answer may have so many tokens.
func specWithAlias(limit int) *spec.Spec {
	return &spec.Spec{
		Models:  []spec.Model{{Name: "m", OutputLimit: limit}},
		Aliases: []spec.Alias{{Name: "the-usual-one", Targets: []spec.AliasTarget{{Model: "m", Weight: 1}}}},
	}
}

// TestRewrittenBodyReachesWorkerIntact: the model, the request for usage and the limit are in their places for any order
// of the body, and nothing else has changed.
func TestRewrittenBodyReachesWorkerIntact(t *testing.T) {
	got := make(chan string, 1)
	a := startAgentWith(t, func(c *local.Config) { c.Spec = specWithAlias(50) }, newChatWorker(t, "w1", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- string(b)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	long := strings.Repeat("word ", 44_000)
	for _, c := range [][2]string{
		{`{"model":"m"}`, `{"model":"m","max_tokens":50}`},
		{`{"model":"the-usual-one","max_tokens":7}`, `{"model":"m","max_tokens":7}`},
		{`{"model":"the-usual-one"}`, `{"model":"m","max_tokens":50}`},
		{`{"model":"the-usual-one","stream":true,"stream_options":{"include_usage":false}}`, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":50}`},
		{`{"stream_options":{"x":1},"stream":true,"model":"the-usual-one"}`, `{"stream_options":{"include_usage":true,"x":1},"stream":true,"model":"m","max_tokens":50}`},
		{`{"messages":[{"role":"user","content":"LONG"}],"stream":true,"model":"the-usual-one"}`, `{"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"LONG"}],"stream":true,"model":"m","max_tokens":50}`},
	} {
		in, want := strings.Replace(c[0], "LONG", long, 1), strings.Replace(c[1], "LONG", long, 1)
		resp, text := postChat(t, a, in)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%.100s: %d %s", in, resp.StatusCode, text)
		}
		if b := <-got; b != want {
			t.Errorf("%.100s\narrived as %.100s ...%s\nwant       %.100s", in, b, b[max(0, len(b)-40):], want)
		}
	}
}

// TestRewrittenPromptIsInMemoryOnce: 220 KB for an alias, with the question for usage besides, are in memory once.
func TestRewrittenPromptIsInMemoryOnce(t *testing.T) {
	const size, many = 220_000, 16
	begun, proceed := make(chan struct{}, many), make(chan struct{})
	let := sync.OnceFunc(func() { close(proceed) })
	a := startAgentWith(t, func(c *local.Config) { c.Spec, c.Workers[0].GPU = specWithAlias(0), "H100" }, newChatWorker(t, "w1", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil || n < size {
			t.Errorf("%d bytes came: %v", n, err)
		}
		begun <- struct{}{}
		<-proceed
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(let)
	body := `{"model":"the-usual-one","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("word ", size/5) + `"}]}`
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools have kept goes with the second
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	answers := make(chan error, many)
	for range many {
		go func() {
			resp, err := testClient.Post("http://"+a.Addr().String()+openai.PathChat, "application/json", strings.NewReader(body))
			if err == nil {
				defer func() { _ = resp.Body.Close() }()
				if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
					err = fmt.Errorf("%d %s", resp.StatusCode, b)
				}
			}
			answers <- err
		}()
	}
	for range many {
		select {
		case <-begun:
		case err := <-answers:
			t.Fatalf("an answer before the worker gave one: %v", err)
		}
	}
	each := float64(heap()-before) / many
	let()
	for range many {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%.0f KB are held for each prompt of %d KB", each/1000, size/1000)
	if each > 1.8*size {
		t.Errorf("%.0f KB are held for each prompt of %d KB", each/1000, size/1000)
	}
}

// newChatWorker starts a worker that serves model m and answers chats with chat.
func newChatWorker(t *testing.T, name string, chat http.HandlerFunc) func(*local.Config) {
	t.Helper()
	s := newPlainServer(t, map[string]string{"/v1/models": `{"data":[{"id":"m"}]}`})
	next := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == openai.PathChat {
			chat(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
	return func(c *local.Config) { c.Workers = append(c.Workers, discover.Worker{Name: name, URL: s.URL}) }
}

// startAgentWith starts an agent over workers that serve model m.
func startAgentWith(t *testing.T, change func(*local.Config), workers ...func(*local.Config)) *local.Agent {
	t.Helper()
	a := startAgent(t, func(c *local.Config) {
		for _, w := range workers {
			w(c)
		}
		if change != nil {
			change(c)
		}
	})
	testkit.Eventually(t, "every worker ready", func() bool { return countReady(a) == len(workers) })
	return a
}

// startCancellableChat posts a body, and the returned function makes it leave and waits until it has.
func startCancellableChat(t *testing.T, a *local.Agent, body string) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		if resp, err := testClient.Do(req); err == nil {
			_ = resp.Body.Close()
			t.Errorf("a request that was left has been answered with %d", resp.StatusCode)
		}
	}()
	return func() { cancel(); <-gone }
}

// TestNonStreamingClientDisconnectFreesWorkerAtOnce: no byte has passed yet, and none would for a minute. The
// worker sees its request end within 100 ms, by the best of five tries: a busy machine may hold any one of them up.
func TestNonStreamingClientDisconnectFreesWorkerAtOnce(t *testing.T) {
	began, ended := make(chan struct{}), make(chan time.Time)
	a := startAgentWith(t, nil, newChatWorker(t, "w1", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		began <- struct{}{}
		<-r.Context().Done()
		ended <- time.Now()
	}))
	var best time.Duration
	for range 5 {
		leave := startCancellableChat(t, a, `{"model":"m","messages":[]}`)
		<-began
		left := time.Now()
		leave()
		if d := (<-ended).Sub(left); best == 0 || d < best {
			best = d
		}
	}
	timed.AssertWithin(t, "the worker freed of a client that left, best of five", best, 100*time.Millisecond)
	testkit.Eventually(t, "the ledger empty", func() bool { return isIdle(a) })
	if s := workerStatus(a, "w1"); s.State != "ready" {
		t.Errorf("the worker was blamed for a client that left: %+v", s)
	}
}

// TestComputedAnswersAreNeverRetried: any status that an engine computes is the answer, streamed or not, with the engine's text
// and Retry-After, and one worker receives the request once. A request that an overloaded worker refuses is sent to one other.
func TestComputedAnswersAreNeverRetried(t *testing.T) {
	var status, calls atomic.Int64
	chat := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		calls.Add(1)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, `{"error":{"message":"so says the engine"}}`)
	}
	a := startAgentWith(t, func(c *local.Config) { c.Health.Failures = 1000 }, newChatWorker(t, "w1", chat), newChatWorker(t, "w2", chat))
	for _, code := range []int{400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 425, 429, 451, 499, 500, 501, 502, 503, 504, 507, 529, 599} {
		status.Store(int64(code))
		for _, body := range []string{`{"model":"m","messages":[]}`, `{"model":"m","stream":true,"messages":[]}`} {
			calls.Store(0)
			resp, text := postChat(t, a, body)
			if resp.StatusCode != code || !strings.Contains(text, "so says the engine") || resp.Header.Get("Retry-After") != "7" {
				t.Errorf("an engine's %d came as %d %q, Retry-After %q", code, resp.StatusCode, text, resp.Header.Get("Retry-After"))
			}
			want := int64(1)
			if code == 429 || code == 502 || code == 503 { // no output was made: one other worker may serve it
				want = 2
			}
			if n := calls.Load(); n != want {
				t.Errorf("a request that was answered with %d was sent %d times", code, n)
			}
		}
	}
}

// TestRetriesStayWithinBudget: every first attempt dies, as when all workers are restarted at once. Of all requests
// at most a tenth, and the burst that was saved up, are sent twice, and none a third time.
func TestRetriesStayWithinBudget(t *testing.T) {
	const enough = 1000
	var mu sync.Mutex
	tries := map[string]int{}
	var first, twice atomic.Int64
	chat := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		tries[r.Header.Get("X-Test")]++
		n := tries[r.Header.Get("X-Test")]
		mu.Unlock()
		switch n {
		case 1:
			first.Add(1)
			panic(http.ErrAbortHandler)
		case 2:
			twice.Add(1)
		default:
			t.Errorf("a request was sent %d times", n)
		}
		_, _ = io.WriteString(w, `{"choices":[]}`)
	}
	var workers []func(*local.Config)
	for i := range 8 {
		workers = append(workers, newChatWorker(t, fmt.Sprint("w", i), chat))
	}
	a := startAgentWith(t, func(c *local.Config) { c.Health.Backoff, c.Health.MaxBackoff = 1, 1 }, workers...) // back at the next probe
	var sent, served atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for first.Load() < enough && sent.Load() < 20*enough {
				n := sent.Add(1)
				body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"request %d"}]}`, n) // each its own: none is suspected for another
				req, err := http.NewRequest(http.MethodPost, "http://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("X-Test", fmt.Sprint(n))
				resp, err := testClient.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
				switch resp.StatusCode {
				case http.StatusOK:
					served.Add(1)
				case http.StatusServiceUnavailable: // all are out until the next probe
					<-time.After(2 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	may := int64(local.RetryBurst) + sent.Load()/10
	t.Logf("of %d requests %d reached a worker, %d twice (at most %d may), %d were served", sent.Load(), first.Load(), twice.Load(), may, served.Load())
	if first.Load() < enough || twice.Load() > may || twice.Load() < local.RetryBurst || served.Load() != twice.Load() {
		t.Errorf("of %d requests %d reached a worker, %d twice, %d were served", sent.Load(), first.Load(), twice.Load(), served.Load())
	}
}

// TestSlowClientStopsReadingFromWorker: a client that stops reading stops its worker within the sockets' buffers, costs no
// memory here, and gets every byte once it reads again.
func TestSlowClientStopsReadingFromWorker(t *testing.T) {
	const total, held = 192 << 20, 48 << 20
	event := []byte("data: " + strings.Repeat("x", 32<<10-8) + "\n\n")
	var written atomic.Int64
	a := startAgentWith(t, nil, newChatWorker(t, "w1", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for written.Load() < total {
			n, err := w.Write(event)
			if err != nil {
				return
			}
			written.Add(int64(n))
		}
	}))
	conn, err := net.Dial("tcp", a.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	body := `{"model":"m","stream":true,"messages":[]}`
	if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	last, since := int64(0), time.Now()
	testkit.Eventually(t, "an answer that has begun and stands", func() bool {
		if n := written.Load(); n != last {
			last, since = n, time.Now()
		}
		return last > 0 && time.Since(since) > 300*time.Millisecond
	})
	stood := written.Load()
	runtime.GC()
	runtime.ReadMemStats(&during)
	grown := int64(during.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("the worker stood after %d KiB; the heap grew by %d KiB", stood>>10, grown>>10)
	if stood > held || grown > 8<<20 {
		t.Errorf("a client that reads nothing let its worker write %d bytes, and the heap grew by %d", stood, grown)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil || n < total || n != written.Load() || resp.Header.Get(forward.HeaderRoute) != "us/us-a/w1" {
		t.Errorf("reading again gave %d bytes of %d (%v), by %q", n, written.Load(), err, resp.Header.Get(forward.HeaderRoute))
	}
}

// TestAbandonedRequestsAreCancelled: a client leaves, of a stream, of an answer in one piece, and while it
// waits for a worker. The GPU is free at once each time.
func TestAbandonedRequestsAreCancelled(t *testing.T) {
	for name, body := range map[string]string{"stream": streamedChat, "whole": nonStreamingChat} {
		t.Run(name, func(t *testing.T) {
			w := newFakeVLLM(t, "w1")
			a := startAgent(t, nil, w)
			w.setMode("hold")
			ctx, leave := context.WithCancel(context.Background())
			var gone sync.WaitGroup
			gone.Go(func() {
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(body))
				if resp, err := testClient.Do(req); err == nil {
					_ = resp.Body.Close()
				}
			})
			testkit.Eventually(t, "it runs", func() bool { return w.running.Load() == 1 })
			left := time.Now()
			leave()
			testkit.Eventually(t, "the worker idle", func() bool { return w.running.Load() == 0 })
			t.Logf("freed after %v", time.Since(left).Round(time.Millisecond))
			gone.Wait()
			testkit.Eventually(t, "the ledger empty", func() bool { return isIdle(a) })
		})
	}
}

// TestOverloadRefusalsAreRetriedOnceAndOthersRelayed: an engine's own 429 and 503 are tried on one other worker, within the retry budget, and
// then reach the client as they are; other refusals are not tried again, which would amplify overload; a full zone says 503 and when to come back, between 1 and 120 s.
func TestOverloadRefusalsAreRetriedOnceAndOthersRelayed(t *testing.T) {
	for _, status := range []int{429, 503, 529, 400} {
		var calls atomic.Int64
		a := startAgent(t, func(c *local.Config) {
			for i := range 2 {
				s := newPlainServer(t, map[string]string{"/v1/models": `{"data":[{"id":"m"}]}`})
				s.Config.Handler = refuseChats(s.Config.Handler, status, &calls)
				c.Workers = append(c.Workers, discover.Worker{Name: fmt.Sprint("w", i), URL: s.URL})
			}
		})
		testkit.Eventually(t, "both are ready", func() bool { return countReady(a) == 2 })
		tries := int64(1)
		if status == 429 || status == 503 {
			tries = 2
		}
		resp, text := postChat(t, a, `{"model":"m","messages":[]}`)
		if resp.StatusCode != status || !strings.Contains(text, "come later") || resp.Header.Get("Retry-After") != "7" || calls.Load() != tries {
			t.Errorf("an engine's %d came as %d %q (Retry-After %q) after %d calls", status, resp.StatusCode, text, resp.Header.Get("Retry-After"), calls.Load())
		}
	}
	w := newFakeVLLM(t, "w1")
	a := startAgent(t, func(c *local.Config) { c.Queue = queue.Config{MaxItems: 1, TenantShare: 1} }, w)
	w.setMode("hold")
	var waiting sync.WaitGroup
	refused := make(chan *http.Response, 8)
	for range 8 {
		waiting.Go(func() {
			body := `{"model":"llama-3.1-8b","max_tokens":400,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 6000) + `"}]}`
			if resp, _ := postChat(t, a, body); resp.StatusCode != http.StatusOK {
				refused <- resp
			}
		})
	}
	testkit.Eventually(t, "the rest is refused", func() bool { return len(refused) >= 5 })
	resp := <-refused
	after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode != http.StatusServiceUnavailable || err != nil || after < 1 || after > 120 {
		t.Errorf("a full zone says %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	close(w.release)
	waiting.Wait()
}

// refuseChats answers chats with a status of the engine's own.
func refuseChats(next http.Handler, status int, calls *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || bytes.Contains(body, []byte(`"max_tokens":1`)) { // the warm-up
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
			return
		}
		calls.Add(1)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"error":{"message":"come later"}}`)
	})
}
