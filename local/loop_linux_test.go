package local_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/health"
)

// scriptedRequest is one request of a script, and how the worker that gets it answers.
type scriptedRequest struct {
	path    string // default: chat completions
	headers []string
	body    string
	answers []http.HandlerFunc // one for each attempt that the request may have
}

// answerWith answers with a JSON body of a known length.
func answerWith(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// streamEvents answers with events of one word each; the end is left out if cut is set, by breaking the connection.
func streamEvents(words []string, cut bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		body, _ := io.ReadAll(r.Body)
		for _, word := range words {
			_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", word)
			w.(http.Flusher).Flush()
		}
		if cut {
			panic(http.ErrAbortHandler)
		}
		usage := ""
		if bytes.Contains(body, []byte(`"include_usage":true`)) {
			usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n"
		}
		_, _ = io.WriteString(w, "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"+usage+"data: [DONE]\n\n")
	}
}

func dieAtOnce(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

const (
	shortAnswer  = `{"choices":[{"message":{"content":"hello there"}}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`
	mChat        = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	mStream      = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	mUsageStream = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`
)

// loopScripts are sessions of one client, each at a new zone of two workers.
func loopScripts() map[string][]scriptedRequest {
	ok, words := answerWith(200, shortAnswer), []string{"one", " two", " three", " four"}
	events := streamEvents(words, false)
	long := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("long prompt ", 6000) + `"}]}`
	huge := strings.Replace(long, "long prompt", strings.Repeat("x", 60), 1000)
	return map[string][]scriptedRequest{
		"answers": {
			{body: mChat, answers: []http.HandlerFunc{ok}},
			{body: mStream, answers: []http.HandlerFunc{events}},
			{body: mUsageStream, answers: []http.HandlerFunc{events}},
			{body: long, answers: []http.HandlerFunc{ok}},
			{body: huge, answers: []http.HandlerFunc{ok}},
			{path: "/v1/completions", body: `{"model":"m","prompt":"hi"}`, answers: []http.HandlerFunc{ok}},
			{path: "/v1/completions", body: `{"model":"m","prompt":"hi","stream":true}`, answers: []http.HandlerFunc{events}},
			{path: "/v1/messages", body: `{"model":"m","max_tokens":4,"messages":[{"role":"user","content":"hi"}]}`, answers: []http.HandlerFunc{ok}},
			{path: "/v1/responses", body: `{"model":"m","input":"hi"}`, answers: []http.HandlerFunc{ok}},
			{body: mChat, headers: []string{"X-Request-Id: mine", "X-Custom: a", "Cookie: secret", "Accept-Encoding: gzip", "User-Agent: me"}, answers: []http.HandlerFunc{ok}},
			{body: mChat, headers: []string{"X-Spillway-Class: batch", "X-Session-Id: s", "Spillway-Tenant: forged"}, answers: []http.HandlerFunc{ok}},
			{body: mChat, headers: []string{"X-Model: m"}, answers: []http.HandlerFunc{ok}},
			{body: mChat, headers: []string{"Content-Type: application/json; charset=utf-8"}, answers: []http.HandlerFunc{ok}},
		},
		"unusual answers": {
			{body: mChat, answers: []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "plain") }}},
			{body: mChat, answers: []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
				h := w.Header()
				h.Set("Content-Type", "application/json")
				h.Set("Server-Timing", "engine;dur=1")
				h.Set("X-Request-Id", "theirs")
				h.Set("X-Spillway-Route", "forged")
				h.Set("Spillway-Deaths", "2")
				_, _ = io.WriteString(w, shortAnswer)
			}}},
			{body: mChat, answers: []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Connection", "close")
				w.Header().Set("X-Extra", "kept")
				_, _ = io.WriteString(w, shortAnswer)
			}}},
			{body: mChat, answers: []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Trailer", "X-End")
				_, _ = io.WriteString(w, shortAnswer)
				w.Header().Set("X-End", "there")
			}}},
			{body: mChat, answers: []http.HandlerFunc{answerWith(201, shortAnswer)}},
			{body: mChat, answers: []http.HandlerFunc{answerWith(404, `{"error":{"message":"no"}}`)}},
			{body: mChat, answers: []http.HandlerFunc{answerWith(400, `{"error":{"message":"bad"}}`)}},
			{body: mChat, answers: []http.HandlerFunc{answerWith(204, "")}},
			{body: mStream, answers: []http.HandlerFunc{answerWith(400, `{"error":{"param":"stream_options"}}`), events}},
			{body: mStream, answers: []http.HandlerFunc{answerWith(200, shortAnswer)}},
			{body: mStream, answers: []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/event-stream") }, events}},
		},
		"refusals": {
			{body: `{"model":"absent","messages":[]}`},
			{body: `{"model":"m"`},
			{body: `{"messages":[]}`},
			{body: `{"model":"m","model":"n","messages":[]}`},
			{body: mChat, headers: []string{"X-Model: n"}},
			{body: mChat, headers: []string{"X-Spillway-Deadline-Ms: soon"}},
			{body: mChat, headers: []string{"X-Spillway-Class: royal"}},
			{body: mChat, headers: []string{"Content-Encoding: gzip"}},
			{path: "/v1/messages", body: `{"model":"absent","max_tokens":4,"messages":[]}`},
			{path: "/v1/nothing", body: mChat},
			{path: "/v1/chat/completions/", body: mChat},
			{body: `{"model":"m","max_tokens":100000,"messages":[{"role":"user","content":"hi"}]}`, answers: []http.HandlerFunc{ok}},
		},
		"retried":         {{body: mChat, answers: []http.HandlerFunc{dieAtOnce, ok}}, {body: mStream, answers: []http.HandlerFunc{events}}},
		"refused by one":  {{body: mChat, answers: []http.HandlerFunc{answerWith(503, `{"error":{"message":"full"}}`), ok}}, {body: mChat, answers: []http.HandlerFunc{ok}}},
		"refused by both": {{body: mChat, answers: []http.HandlerFunc{answerWith(429, `{"error":{"message":"full"}}`), answerWith(429, `{"error":{"message":"full"}}`)}}},
		"killed both":     {{body: mChat, answers: []http.HandlerFunc{dieAtOnce, dieAtOnce}}, {body: mChat}},
		"resumed":         {{body: mStream, answers: []http.HandlerFunc{streamEvents(words[:2], true), streamEvents(words[2:], false)}}},
		"resumed in vain": {{body: mUsageStream, answers: []http.HandlerFunc{streamEvents(words[:2], true), dieAtOnce}}},
		"cut":             {{body: strings.Replace(mStream, `"stream"`, `"stop":["."],"stream"`, 1), answers: []http.HandlerFunc{streamEvents(words[:2], true)}}},
		"cut with a length": {{body: mChat, answers: []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "500")
			_, _ = io.WriteString(w, shortAnswer)
		}}}},
		"an error event": {{body: mStream, answers: []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one\"}}]}\n\ndata: {\"error\":{\"message\":\"CUDA error\",\"code\":500}}\n\n")
		}, streamEvents(words[1:], false)}}},
		"out of memory": {{body: mChat, answers: []http.HandlerFunc{answerWith(500, `{"error":{"message":"CUDA out of memory"}}`)}}},
	}
}

// TestLoopServesAsGoroutines runs scripted sessions against a zone whose requests go through the request loop and against one
// that net/http serves alone (http.fast: false): answers, what the workers got, metrics and the state of the scheduler are
// the same.
func TestLoopServesAsGoroutines(t *testing.T) {
	for name, script := range loopScripts() {
		t.Run(name, func(t *testing.T) {
			loop, goroutines := runLoopScript(t, script, false), runLoopScript(t, script, true)
			for i := range max(len(loop), len(goroutines)) {
				if i >= len(loop) || i >= len(goroutines) || loop[i] != goroutines[i] {
					t.Errorf("loop       %s\ngoroutines %s", lineOf(loop, i), lineOf(goroutines, i))
				}
			}
		})
	}
}

func lineOf(lines []string, i int) string {
	if i >= len(lines) {
		return "(none)"
	}
	return lines[i]
}

// runLoopScript runs a script against a new zone and returns what is to be compared.
func runLoopScript(t *testing.T, script []scriptedRequest, withoutLoop bool) (lines []string) {
	var mu sync.Mutex
	var answers []http.HandlerFunc
	received := ""
	chat := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		names := []string{}
		for name, values := range r.Header {
			names = append(names, fmt.Sprint(name, values))
		}
		slices.Sort(names)
		mu.Lock()
		received += fmt.Sprintf(" [%s %s %v %d bytes %.300s]", r.Method, r.RequestURI, names, len(body), body)
		var next http.HandlerFunc
		if len(answers) > 0 {
			next, answers = answers[0], answers[1:]
		}
		mu.Unlock()
		if next == nil {
			next = answerWith(418, `{"error":"unexpected"}`)
		}
		next(w, r)
	}
	workers := make([]func(*local.Config), 2)
	for i := range workers {
		workers[i] = newGenerationWorker(t, fmt.Sprint("w", i), chat)
	}
	reg := telemetry.NewRegistry("local", "a", "test")
	a := startAgentWith(t, func(c *local.Config) {
		c.Registry, c.NoFastPath, c.Seed = reg, withoutLoop, 7
		c.Health = health.Config{Backoff: time.Hour}
		c.Health.SlowStart = time.Nanosecond
		c.Spec = &spec.Spec{Models: []spec.Model{{Name: "m", OutputLimit: 5000}}}
	}, workers...)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	for _, q := range script {
		mu.Lock()
		answers, received = q.answers, ""
		mu.Unlock()
		path := q.path
		if path == "" {
			path = "/v1/chat/completions"
		}
		req, err := http.NewRequest(http.MethodPost, "http://"+a.Addr().String()+path, strings.NewReader(q.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		for _, line := range q.headers {
			name, value, _ := strings.Cut(line, ": ")
			req.Header.Set(name, value)
		}
		line := fmt.Sprintf("%s %.60s: ", path, q.body)
		resp, err := client.Do(req)
		if err != nil {
			lines = append(lines, line+"no answer")
			continue
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		head := []string{}
		for name, values := range resp.Header {
			switch name {
			case "Date", "Content-Length":
				continue
			case "X-Request-Id":
				if values[0] != "mine" {
					values = []string{"generated"}
				}
			case "Server-Timing":
				values = []string{fmt.Sprint(len(values), " values")}
			case "X-Spillway-Route":
				values = []string{values[0][:len(values[0])-1]}
			case "Retry-After", "Retry-After-Ms":
				values = []string{"set"}
			}
			head = append(head, fmt.Sprint(name, values))
		}
		slices.Sort(head)
		mu.Lock()
		lines = append(lines, fmt.Sprintf("%s%d %v %q cut %v trailer %v; worker got%s", line, resp.StatusCode, head, text, err != nil, resp.Trailer, received))
		mu.Unlock()
	}
	testkit.Eventually(t, "nothing is in flight", func() bool { return isIdle(a) })
	return append(lines, collectFigures(t, reg)...)
}

// newGenerationWorker is newChatWorker for all generation paths.
func newGenerationWorker(t *testing.T, name string, chat http.HandlerFunc) func(*local.Config) {
	add := newChatWorker(t, name, chat)
	return func(c *local.Config) {
		add(c)
		w := &c.Workers[len(c.Workers)-1]
		s := newPlainServer(t, map[string]string{"/v1/models": `{"data":[{"id":"m"}]}`})
		next := s.Config.Handler
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				chat(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
		w.URL = s.URL
	}
}

// collectFigures returns the counters, the counts of histograms and the gauges of requests of an instance, except that of
// the loop itself and those which scrapes move.
func collectFigures(t *testing.T, reg *prometheus.Registry) (lines []string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		name := f.GetName()
		switch {
		case !strings.HasPrefix(name, "spillway_local_") || name == "spillway_local_loop_requests_total":
			continue
		case strings.Contains(name, "scrape") || strings.Contains(name, "discover") || strings.Contains(name, "prefill_tokens") || strings.Contains(name, "queue_predicted"):
			continue
		}
		for _, m := range f.GetMetric() {
			labels := []string{}
			for _, l := range m.GetLabel() {
				if l.GetName() == "worker" {
					continue // which of the two it was is chance
				}
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			switch {
			case m.GetCounter() != nil:
				lines = append(lines, fmt.Sprint(name, labels, " ", m.GetCounter().GetValue()))
			case m.GetHistogram() != nil:
				lines = append(lines, fmt.Sprint(name, labels, " ", m.GetHistogram().GetSampleCount()))
			case strings.Contains(name, "in_flight"), strings.Contains(name, "body"), strings.Contains(name, "resume_text"), strings.Contains(name, "prefix_index"), strings.Contains(name, "worker_state"), strings.Contains(name, "queue_length"):
				lines = append(lines, fmt.Sprint(name, labels, " ", m.GetGauge().GetValue()))
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// TestLoopServesOrdinaryRequests: chats and streams at a worker without TLS are served by the loop to their end, and the
// metric shows it.
func TestLoopServesOrdinaryRequests(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	reg := telemetry.NewRegistry("local", "a", "test")
	a := startAgent(t, func(c *local.Config) { c.Registry = reg }, w)
	for i := range 20 {
		body := streamedChat
		if i%2 == 0 {
			body = shortChat
		}
		if resp, text := postChat(t, a, body); resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", resp.StatusCode, text)
		}
	}
	if n := loopRequestCount(t, reg, "completed"); n != 20 {
		t.Fatalf("%v of 20 completed on the loop; %v", n, collectFigures(t, reg))
	}
	if resp, _ := postChat(t, a, `{"model":"absent","messages":[]}`); resp.StatusCode != http.StatusNotFound || loopRequestCount(t, reg, "decided") != 1 {
		t.Errorf("%d, %v decided", resp.StatusCode, loopRequestCount(t, reg, "decided"))
	}
}

// loopRequestCount is the loop's counter of one result.
func loopRequestCount(t *testing.T, reg *prometheus.Registry, result string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "spillway_local_loop_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "result" && l.GetValue() == result {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return -1
}

// TestLoopKeepsQueuedRequests: requests that wait for room, and are then placed, never leave the loop; one that waits until
// its deadline is refused.
func TestLoopKeepsQueuedRequests(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	w.kvBlocks = 4 // one request at a time
	reg := telemetry.NewRegistry("local", "a", "test")
	a := startAgent(t, func(c *local.Config) { c.Registry = reg }, w)
	w.setMode("hold")
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if status, _, text := postWithHeader(t, a, "X-Spillway-Class", "interactive"); status != http.StatusOK {
				t.Errorf("%d %s", status, text)
			}
		})
	}
	testkit.Eventually(t, "two wait", func() bool {
		return slices.ContainsFunc(collectFigures(t, reg), func(s string) bool {
			return strings.HasPrefix(s, "spillway_local_queue_length") && strings.HasSuffix(s, " 2")
		})
	})
	if status, _, text := postWithHeader(t, a, "X-Request-Timeout-Ms", "100"); status != http.StatusGatewayTimeout || !strings.Contains(text, "deadline_unmeetable") {
		t.Errorf("%d %q", status, text)
	}
	for range 3 {
		w.release <- struct{}{}
	}
	all.Wait()
	if done, left := loopRequestCount(t, reg, "completed"), loopRequestCount(t, reg, "decided"); done != 3 || left != 1 {
		t.Errorf("%v completed on the loop, want 3; %v left it, want 1", done, left)
	}
}
