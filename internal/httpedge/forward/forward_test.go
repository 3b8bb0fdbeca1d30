package forward_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/timed"
)

// forwardChain is a client, a forwarder and a worker in a chain.
type forwardChain struct {
	worker, proxy *httptest.Server
	results       chan forward.Result
	streamMeter   *openai.StreamMeter
}

func newForwardChain(t *testing.T, idle time.Duration, worker http.HandlerFunc) *forwardChain {
	t.Helper()
	h := &forwardChain{worker: httptest.NewServer(worker), results: make(chan forward.Result, 1), streamMeter: &openai.StreamMeter{}}
	tr := forward.NewTransport(nil)
	f := &forward.Forwarder{Transport: tr, IdleTimeout: idle}
	h.proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, e := forward.ReadBody(w, r, 1<<10, 0)
		if e != nil {
			forward.WriteError(w, e)
			return
		}
		req, err := forward.NewHopRequest(r.Context(), r, h.worker.URL+r.URL.Path, body, nil)
		if err != nil {
			t.Error(err)
			return
		}
		res := f.Forward(r.Context(), w, req, h.streamMeter)
		h.results <- res
		if res.Outcome.MayRetry() {
			forward.WriteError(w, openai.UpstreamFailed("lost"))
		}
		if res.Outcome == forward.BrokenOff {
			forward.AbortHandler()
		}
	}))
	t.Cleanup(func() {
		h.proxy.Close()
		h.worker.Close()
		tr.CloseIdleConnections()
		http.DefaultClient.CloseIdleConnections()
	})
	return h
}

func (h *forwardChain) postBody(t *testing.T, body string) *http.Response {
	t.Helper()
	resp, err := http.Post(h.proxy.URL+"/v1/x", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func writeEvents(w http.ResponseWriter, texts ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, s := range texts {
		_, _ = io.WriteString(w, s)
		w.(http.Flusher).Flush()
	}
}

const tokenEvent = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n"

func TestForwardStreamsEachEventAsItComes(t *testing.T) {
	next := make(chan struct{})
	h := newForwardChain(t, 0, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Spillway-Secret", "x")
		for range 3 {
			writeEvents(w, tokenEvent)
			<-next
		}
		writeEvents(w, "data: [DONE]\n\n")
	})
	resp := h.postBody(t, "{}")
	if resp.Header.Get("X-Accel-Buffering") != "no" || resp.Header.Get("Spillway-Secret") != "" {
		t.Errorf("headers are %v", resp.Header)
	}
	r := bufio.NewReader(resp.Body)
	for range 3 { // each event is read before the worker may send the next
		line, err := r.ReadString('\n')
		if err != nil || line+"\n" != tokenEvent {
			t.Fatalf("line %q (%v)", line, err)
		}
		_, _ = r.ReadString('\n')
		next <- struct{}{}
	}
	if rest, err := io.ReadAll(r); err != nil || string(rest) != "data: [DONE]\n\n" {
		t.Fatalf("end is %q (%v)", rest, err)
	}
	res := <-h.results
	if res.Err != nil || res.Outcome != forward.Completed || !res.ReachedClient || res.FirstByteAt.IsZero() || res.BytesOut != int64(3*len(tokenEvent)+14) || !h.streamMeter.Done || h.streamMeter.Events != 3 {
		t.Fatalf("result %+v, meter %+v", res, h.streamMeter)
	}
}

func TestForwardReportsEachOutcome(t *testing.T) {
	die := func() { panic(http.ErrAbortHandler) }
	for _, tc := range []struct {
		name   string
		worker http.HandlerFunc
		status int
		body   string // of the response; "*": any
		cut    bool   // the client sees the connection break
		check  func(forward.Result) bool
	}{
		{
			"dies before the head", func(w http.ResponseWriter, r *http.Request) { die() }, 502, "*", false,
			func(r forward.Result) bool {
				return r.Outcome == forward.Unanswered && !r.ReachedClient && r.Err != nil
			},
		},
		{"dies between head and first byte", func(w http.ResponseWriter, r *http.Request) {
			writeEvents(w, "")
			w.(http.Flusher).Flush()
			die()
		}, 502, "*", false, func(r forward.Result) bool {
			return r.Outcome == forward.Unanswered && !r.ReachedClient && r.Status == 200
		}},
		{
			"dies in a stream, inside an event", func(w http.ResponseWriter, r *http.Request) {
				writeEvents(w, tokenEvent, "data: {\"cho")
				die()
			}, 200, tokenEvent + "data: {\"cho\n\n" + string(openai.UpstreamLost().StreamEvent()), false,
			func(r forward.Result) bool { return r.Outcome == forward.StreamBroken && r.ReachedClient },
		},
		{"dies in a stream, between events", func(w http.ResponseWriter, r *http.Request) {
			writeEvents(w, tokenEvent)
			die()
		}, 200, tokenEvent + string(openai.UpstreamLost().StreamEvent()), false, func(r forward.Result) bool { return r.Outcome == forward.StreamBroken }},
		{"dies in a body", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"a":`)
			w.(http.Flusher).Flush()
			die()
		}, 200, `{"a":`, true, func(r forward.Result) bool { return r.Outcome == forward.BrokenOff }},
		{
			"engine's own error", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "oom", 500) }, 500, "oom\n", false,
			func(r forward.Result) bool { return r.Outcome == forward.Completed && r.ReachedClient && r.Err == nil },
		},
		{"not started", func(w http.ResponseWriter, r *http.Request) {
			forward.WriteNotStarted(w, openai.NoCapacity("m", 0))
		}, 502, "*", false, func(r forward.Result) bool {
			return r.Outcome == forward.Refused && r.NoWorkBegun && r.Refusal.Status == 503
		}},
		{
			"empty answer", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) }, 204, "", false,
			func(r forward.Result) bool { return r.Outcome == forward.Completed && r.ReachedClient && r.Err == nil },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newForwardChain(t, 0, tc.worker)
			resp := h.postBody(t, "{}")
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != tc.status || (tc.body != "*" && string(body) != tc.body) || (err != nil) != tc.cut {
				t.Errorf("client got %d %q (%v)", resp.StatusCode, body, err)
			}
			if res := <-h.results; !tc.check(res) {
				t.Errorf("result is %+v", res)
			}
		})
	}
}

func TestRefusedConnectionIsRetryable(t *testing.T) {
	h := newForwardChain(t, 0, nil)
	h.worker.Close()
	if resp := h.postBody(t, "{}"); resp.StatusCode != 502 {
		t.Fatalf("status %d", resp.StatusCode)
	}
	if res := <-h.results; !res.Outcome.MayRetry() {
		t.Fatalf("result %+v", res)
	}
}

func TestClientCancelReachesWorker(t *testing.T) {
	left := make(chan time.Time, 1)
	h := newForwardChain(t, 0, func(w http.ResponseWriter, r *http.Request) {
		writeEvents(w, tokenEvent)
		<-r.Context().Done()
		left <- time.Now()
	})
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "POST", h.proxy.URL, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.ReadFull(resp.Body, make([]byte, len(tokenEvent))); err != nil {
		t.Fatal(err)
	}
	gone := time.Now()
	cancel()
	timed.AssertWithin(t, "the worker's notice of a client that left", (<-left).Sub(gone), 100*time.Millisecond)
	if res := <-h.results; res.Outcome != forward.ClientGone || res.IsTruncated() {
		t.Errorf("result %+v", res)
	}
}

func TestStalledStreamEndsWithErrorEvent(t *testing.T) {
	h := newForwardChain(t, 50*time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
		writeEvents(w, tokenEvent)
		<-r.Context().Done()
	})
	body, err := io.ReadAll(h.postBody(t, "{}").Body)
	if err != nil || string(body) != tokenEvent+string(openai.UpstreamLost().StreamEvent()) {
		t.Fatalf("body %q (%v)", body, err)
	}
	if res := <-h.results; !res.IsTruncated() || res.Outcome.IsClientGone() {
		t.Fatalf("result %+v", res)
	}
}

func TestSilentEndpointIsGivenUp(t *testing.T) {
	h := newForwardChain(t, 50*time.Millisecond, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // the server watches the connection only after the body was read
		<-r.Context().Done()
	})
	if resp := h.postBody(t, "{}"); resp.StatusCode != 502 {
		t.Fatalf("status %d", resp.StatusCode)
	}
	if res := <-h.results; !res.Outcome.MayRetry() || res.ReachedClient {
		t.Fatalf("result %+v", res)
	}
}

func TestReadBodyRefusesLargeBodiesBeforeAndWhileReading(t *testing.T) {
	h := newForwardChain(t, 0, func(http.ResponseWriter, *http.Request) {})
	if resp := h.postBody(t, strings.Repeat("x", 2<<10)); resp.StatusCode != 413 {
		t.Errorf("a large body with its length got %d, want 413", resp.StatusCode)
	}
	resp, err := http.Post(h.proxy.URL, "application/json", io.MultiReader(strings.NewReader(strings.Repeat("x", 2<<10))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != 413 {
		t.Errorf("a large chunked body got %d, want 413", resp.StatusCode)
	}
	req, err := http.NewRequest("POST", h.proxy.URL, strings.NewReader("zipped"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Encoding", "gzip")
	zipped, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = zipped.Body.Close() }()
	if zipped.StatusCode != 415 {
		t.Errorf("a compressed body got %d, want 415", zipped.StatusCode)
	}
}

func TestWriteErrorHeaders(t *testing.T) {
	w := httptest.NewRecorder()
	forward.WriteError(w, openai.NoCapacity("m", 2500*time.Millisecond))
	if w.Code != 503 || w.Header().Get("Retry-After") != "3" || w.Header().Get("Retry-After-Ms") != "2500" || w.Header().Get("X-Should-Retry") != "true" {
		t.Errorf("503 is %d %v", w.Code, w.Header())
	}
	w = httptest.NewRecorder()
	forward.WriteError(w, openai.InvalidAPIKey())
	if w.Code != 401 || w.Header().Get("X-Should-Retry") != "false" || w.Header().Get("Retry-After") != "" || w.Header().Get("Www-Authenticate") == "" {
		t.Errorf("401 is %d %v", w.Code, w.Header())
	}
	w = httptest.NewRecorder()
	(&forward.Refusal{Status: 503, Header: http.Header{"Retry-After": {"5"}, forward.HeaderNotStarted: {"1"}}, Body: []byte("x")}).WriteAnswer(w, false)
	if w.Code != 503 || w.Header().Get("Retry-After") != "5" || w.Header().Get(forward.HeaderNotStarted) != "" || w.Body.String() != "x" {
		t.Errorf("refusal is %d %v %q", w.Code, w.Header(), w.Body)
	}
}

// cleanEndTransport ends its response properly when its client hangs up after one event.
type cleanEndTransport struct{ began chan struct{} }

func (p cleanEndTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	in, out := io.Pipe()
	go func() {
		_, _ = io.WriteString(out, tokenEvent)
		close(p.began)
		<-r.Context().Done()
		_ = out.Close()
	}()
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: in, ContentLength: -1}, nil
}

func TestCleanEndAfterGivingUpCountsAsTruncated(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	p := cleanEndTransport{began: make(chan struct{})}
	go func() {
		<-p.began
		cancel(fmt.Errorf("%w: nothing is heard of it", forward.ErrGivenUp))
	}()
	w := httptest.NewRecorder()
	res := (&forward.Forwarder{Transport: p}).Forward(ctx, w, httptest.NewRequest("POST", "/", nil), nil)
	if !res.IsTruncated() || !res.IsGivenUp() || w.Body.String() != tokenEvent+string(openai.UpstreamLost().StreamEvent()) {
		t.Fatalf("result %+v, body %q", res, w.Body)
	}
}

const usageEvent = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n"

// newUsageProxy creates a proxy that requests usage on behalf of its client; refused counts the endpoints that
// refused it.
func newUsageProxy(t *testing.T, refused *atomic.Int64, meter *openai.StreamMeter, worker http.HandlerFunc) *httptest.Server {
	t.Helper()
	back := httptest.NewServer(worker)
	tr := forward.NewTransport(nil)
	f, original := &forward.Forwarder{Transport: tr}, openai.NewEditedBody([]byte("original"))
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := forward.NewHopRequest(r.Context(), r, back.URL, []byte("asking"), nil)
		if err != nil {
			t.Error(err)
			return
		}
		_ = f.ForwardWith(r.Context(), w, req, meter, forward.Options{
			HideUsage: true, Original: &original, OnUsageRefused: func() { refused.Add(1) },
		})
	}))
	t.Cleanup(func() {
		front.Close()
		back.Close()
		tr.CloseIdleConnections()
		http.DefaultClient.CloseIdleConnections()
	})
	return front
}

func TestHiddenUsageReachesTheMeterOnly(t *testing.T) {
	for name, tc := range map[string]struct {
		header http.Header
		want   string
	}{
		"a stream":           {nil, tokenEvent + "data: [DONE]\n\n"},
		"with a length":      {http.Header{"Content-Length": {strconv.Itoa(len(tokenEvent + usageEvent + "data: [DONE]\n\n"))}}, tokenEvent + "data: [DONE]\n\n"},
		"an encoded stream":  {http.Header{"Content-Encoding": {"br"}}, tokenEvent + usageEvent + "data: [DONE]\n\n"},
		"not a stream":       {http.Header{"Content-Type": {"text/plain"}}, tokenEvent + usageEvent + "data: [DONE]\n\n"},
		"cut before the end": {http.Header{"X-Cut": {"1"}}, tokenEvent + "data: [DONE]\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var refused atomic.Int64
			var meter openai.StreamMeter
			front := newUsageProxy(t, &refused, &meter, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for k, v := range tc.header {
					w.Header()[k] = v
				}
				_, _ = io.WriteString(w, tokenEvent+usageEvent[:10])
				w.(http.Flusher).Flush()
				_, _ = io.WriteString(w, usageEvent[10:]+"data: [DONE]\n\n")
			})
			resp, err := http.Post(front.URL, "application/json", strings.NewReader("original"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			got, err := io.ReadAll(resp.Body)
			if err != nil || string(got) != tc.want {
				t.Errorf("the client got %q (%v), want %q", got, err, tc.want)
			}
			if meter.Usage.Prompt != 9 || !meter.Done {
				t.Errorf("the meter saw %+v", meter)
			}
		})
	}
}

func TestOriginalBodyIsSentWhenUsageRequestIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		status  int
		body    string
		refused int64
		got     string
	}{
		"named":           {400, `{"error":{"param":"stream_options"}}`, 1, tokenEvent},
		"unprocessable":   {422, `{"detail":[{"loc":["body","stream_options","include_usage"]}]}`, 1, tokenEvent},
		"another mistake": {400, `{"error":{"message":"the prompt is too long"}}`, 0, `{"error":{"message":"the prompt is too long"}}`},
		"long":            {400, strings.Repeat("x", 100<<10), 0, strings.Repeat("x", 100<<10)},
		"overloaded":      {503, `stream_options`, 0, `stream_options`},
	} {
		t.Run(name, func(t *testing.T) {
			var refused atomic.Int64
			front := newUsageProxy(t, &refused, &openai.StreamMeter{}, func(w http.ResponseWriter, r *http.Request) {
				if body, _ := io.ReadAll(r.Body); string(body) != "original" {
					w.WriteHeader(tc.status)
					_, _ = io.WriteString(w, tc.body)
					return
				}
				writeEvents(w, tokenEvent)
			})
			resp, err := http.Post(front.URL, "application/json", strings.NewReader("original"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			if got, err := io.ReadAll(resp.Body); err != nil || string(got) != tc.got {
				t.Errorf("the client got %.100q (%v), want %.100q", got, err, tc.got)
			}
			if refused.Load() != tc.refused {
				t.Errorf("%d refusals, want %d", refused.Load(), tc.refused)
			}
		})
	}
}

// transportFunc adapts a function to http.RoundTripper.
type transportFunc func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestRequestBodyIsReleasedAtFirstByte: a request may be resent until its response begins; from then on its
// body is not kept.
func TestRequestBodyIsReleasedAtFirstByte(t *testing.T) {
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "answer")
	}))
	defer worker.Close()
	under := &http.Transport{}
	defer under.CloseIdleConnections()
	var again func() (io.ReadCloser, error)
	f := &forward.Forwarder{Transport: transportFunc(func(r *http.Request) (*http.Response, error) {
		again = r.GetBody
		resp, err := under.RoundTrip(r)
		if body, err := again(); err != nil {
			t.Errorf("before the first byte: %v", err)
		} else if text, err := io.ReadAll(body); string(text) != "prompt" || err != nil {
			t.Errorf("before the first byte it is sent again as %q, %v", text, err)
		}
		return resp, err
	})}
	in := httptest.NewRequest(http.MethodPost, "/v1/completions", nil)
	req, err := forward.NewHopRequest(t.Context(), in, worker.URL+"/v1/completions", []byte("prompt"), nil)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	if res := f.Forward(t.Context(), w, req, nil); res.Err != nil || w.Body.String() != "answer" {
		t.Fatalf("%v, %q", res.Err, w.Body)
	}
	if _, err := again(); err == nil {
		t.Error("the body is kept after the answer has begun")
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
