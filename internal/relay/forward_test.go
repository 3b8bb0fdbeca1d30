package relay_test

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

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
)

// hop is a worker behind a forwarder behind a client.
type hop struct {
	worker, front *httptest.Server
	results       chan relay.Result
	meter         *openai.StreamMeter
}

func newHop(t *testing.T, idle time.Duration, worker http.HandlerFunc) *hop {
	t.Helper()
	h := &hop{worker: httptest.NewServer(worker), results: make(chan relay.Result, 1), meter: &openai.StreamMeter{}}
	tr := relay.NewTransport(nil)
	f := &relay.Forwarder{Transport: tr, IdleTimeout: idle}
	h.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, e := relay.ReadBody(w, r, 1<<10, 0)
		if e != nil {
			relay.WriteError(w, e)
			return
		}
		req, err := relay.Outbound(r.Context(), r, h.worker.URL+r.URL.Path, body, nil)
		if err != nil {
			t.Error(err)
			return
		}
		res := f.Forward(r.Context(), w, req, h.meter)
		h.results <- res
		if res.Retryable {
			relay.WriteError(w, openai.Upstream("lost"))
		}
		if res.Truncated && !res.Events {
			relay.Abort()
		}
	}))
	t.Cleanup(func() {
		h.front.Close()
		h.worker.Close()
		tr.CloseIdleConnections()
		http.DefaultClient.CloseIdleConnections()
	})
	return h
}

func (h *hop) post(t *testing.T, body string) *http.Response {
	t.Helper()
	resp, err := http.Post(h.front.URL+"/v1/x", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func events(w http.ResponseWriter, texts ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, s := range texts {
		_, _ = io.WriteString(w, s)
		w.(http.Flusher).Flush()
	}
}

const event = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n"

func TestForwardStreamsEachEventAsItComes(t *testing.T) {
	next := make(chan struct{})
	h := newHop(t, 0, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Spillway-Secret", "x")
		for range 3 {
			events(w, event)
			<-next
		}
		events(w, "data: [DONE]\n\n")
	})
	resp := h.post(t, "{}")
	if resp.Header.Get("X-Accel-Buffering") != "no" || resp.Header.Get("Spillway-Secret") != "" {
		t.Errorf("headers are %v", resp.Header)
	}
	r := bufio.NewReader(resp.Body)
	for range 3 { // each event is read before the worker may send the next
		line, err := r.ReadString('\n')
		if err != nil || line+"\n" != event {
			t.Fatalf("line %q (%v)", line, err)
		}
		_, _ = r.ReadString('\n')
		next <- struct{}{}
	}
	if rest, err := io.ReadAll(r); err != nil || string(rest) != "data: [DONE]\n\n" {
		t.Fatalf("end is %q (%v)", rest, err)
	}
	res := <-h.results
	if res.Err != nil || !res.Started || !res.Events || res.FirstByte.IsZero() || res.Bytes != int64(3*len(event)+14) || !h.meter.Done || h.meter.Events != 3 {
		t.Fatalf("result %+v, meter %+v", res, h.meter)
	}
}

func TestForwardOutcomes(t *testing.T) {
	die := func() { panic(http.ErrAbortHandler) }
	for _, tc := range []struct {
		name   string
		worker http.HandlerFunc
		status int
		body   string // of the answer; "*": anything
		cut    bool   // the client sees the connection break
		check  func(relay.Result) bool
	}{
		{
			"dies before the head", func(w http.ResponseWriter, r *http.Request) { die() }, 502, "*", false,
			func(r relay.Result) bool { return r.Retryable && !r.Started && r.Err != nil },
		},
		{"dies between head and first byte", func(w http.ResponseWriter, r *http.Request) {
			events(w, "")
			w.(http.Flusher).Flush()
			die()
		}, 502, "*", false, func(r relay.Result) bool { return r.Retryable && !r.Started && r.Status == 200 }},
		{
			"dies in a stream, inside an event", func(w http.ResponseWriter, r *http.Request) {
				events(w, event, "data: {\"cho")
				die()
			}, 200, event + "data: {\"cho\n\n" + string(openai.UpstreamLost().Event()), false,
			func(r relay.Result) bool { return r.Truncated && r.Started && !r.Retryable },
		},
		{"dies in a stream, between events", func(w http.ResponseWriter, r *http.Request) {
			events(w, event)
			die()
		}, 200, event + string(openai.UpstreamLost().Event()), false, func(r relay.Result) bool { return r.Truncated && !r.Retryable }},
		{"dies in a body", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"a":`)
			w.(http.Flusher).Flush()
			die()
		}, 200, `{"a":`, true, func(r relay.Result) bool { return r.Truncated && !r.Retryable && !r.Events }},
		{
			"engine's own error", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "oom", 500) }, 500, "oom\n", false,
			func(r relay.Result) bool { return r.Started && !r.Retryable && r.Err == nil },
		},
		{"not started", func(w http.ResponseWriter, r *http.Request) {
			relay.WriteNotStarted(w, openai.NoCapacity("m", 0))
		}, 502, "*", false, func(r relay.Result) bool { return r.NotStarted && r.Retryable && r.Refused.Status == 503 }},
		{
			"empty answer", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) }, 204, "", false,
			func(r relay.Result) bool { return r.Started && r.Err == nil },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHop(t, 0, tc.worker)
			resp := h.post(t, "{}")
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

func TestForwardNobodyListens(t *testing.T) {
	h := newHop(t, 0, nil)
	h.worker.Close()
	if resp := h.post(t, "{}"); resp.StatusCode != 502 {
		t.Fatalf("status %d", resp.StatusCode)
	}
	if res := <-h.results; !res.Retryable {
		t.Fatalf("result %+v", res)
	}
}

func TestForwardCancelPassesThrough(t *testing.T) {
	left := make(chan time.Time, 1)
	h := newHop(t, 0, func(w http.ResponseWriter, r *http.Request) {
		events(w, event)
		<-r.Context().Done()
		left <- time.Now()
	})
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "POST", h.front.URL, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.ReadFull(resp.Body, make([]byte, len(event))); err != nil {
		t.Fatal(err)
	}
	gone := time.Now()
	cancel()
	if d := (<-left).Sub(gone); d > 100*time.Millisecond {
		t.Errorf("the worker noticed after %v, want within 100 ms", d)
	}
	if res := <-h.results; !res.ClientGone || res.Retryable || res.Truncated {
		t.Errorf("result %+v", res)
	}
}

func TestForwardEndsAStreamThatStandsStill(t *testing.T) {
	h := newHop(t, 50*time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
		events(w, event)
		<-r.Context().Done()
	})
	body, err := io.ReadAll(h.post(t, "{}").Body)
	if err != nil || string(body) != event+string(openai.UpstreamLost().Event()) {
		t.Fatalf("body %q (%v)", body, err)
	}
	if res := <-h.results; !res.Truncated || res.ClientGone {
		t.Fatalf("result %+v", res)
	}
}

func TestForwardGivesUpOnAPlaceThatNeverAnswers(t *testing.T) {
	h := newHop(t, 50*time.Millisecond, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // only then does the server watch the connection
		<-r.Context().Done()
	})
	if resp := h.post(t, "{}"); resp.StatusCode != 502 {
		t.Fatalf("status %d", resp.StatusCode)
	}
	if res := <-h.results; !res.Retryable || res.ClientGone || res.Started {
		t.Fatalf("result %+v", res)
	}
}

func TestReadBodyRefusesLargeBodiesBeforeAndWhileReading(t *testing.T) {
	h := newHop(t, 0, func(http.ResponseWriter, *http.Request) {})
	if resp := h.post(t, strings.Repeat("x", 2<<10)); resp.StatusCode != 413 {
		t.Errorf("a large body with its length got %d, want 413", resp.StatusCode)
	}
	resp, err := http.Post(h.front.URL, "application/json", io.MultiReader(strings.NewReader(strings.Repeat("x", 2<<10))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != 413 {
		t.Errorf("a large chunked body got %d, want 413", resp.StatusCode)
	}
	req, err := http.NewRequest("POST", h.front.URL, strings.NewReader("zipped"))
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
	relay.WriteError(w, openai.NoCapacity("m", 2500*time.Millisecond))
	if w.Code != 503 || w.Header().Get("Retry-After") != "3" || w.Header().Get("Retry-After-Ms") != "2500" || w.Header().Get("X-Should-Retry") != "true" {
		t.Errorf("503 is %d %v", w.Code, w.Header())
	}
	w = httptest.NewRecorder()
	relay.WriteError(w, openai.InvalidAPIKey())
	if w.Code != 401 || w.Header().Get("X-Should-Retry") != "false" || w.Header().Get("Retry-After") != "" || w.Header().Get("Www-Authenticate") == "" {
		t.Errorf("401 is %d %v", w.Code, w.Header())
	}
	w = httptest.NewRecorder()
	(&relay.Refusal{Status: 503, Header: http.Header{"Retry-After": {"5"}, relay.HeaderNotStarted: {"1"}}, Body: []byte("x")}).Write(w, false)
	if w.Code != 503 || w.Header().Get("Retry-After") != "5" || w.Header().Get(relay.HeaderNotStarted) != "" || w.Body.String() != "x" {
		t.Errorf("refusal is %d %v %q", w.Code, w.Header(), w.Body)
	}
}

// politeTransport ends its answer properly when it is hung up on, after one event.
type politeTransport struct{ began chan struct{} }

func (p politeTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	in, out := io.Pipe()
	go func() {
		_, _ = io.WriteString(out, event)
		close(p.began)
		<-r.Context().Done()
		_ = out.Close()
	}()
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: in, ContentLength: -1}, nil
}

func TestForwardNeverTakesAnEndOfItsOwnMakingForTheAnswers(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	p := politeTransport{began: make(chan struct{})}
	go func() {
		<-p.began
		cancel(fmt.Errorf("%w: nothing is heard of it", relay.ErrGivenUp))
	}()
	w := httptest.NewRecorder()
	res := (&relay.Forwarder{Transport: p}).Forward(ctx, w, httptest.NewRequest("POST", "/", nil), nil)
	if !res.Truncated || !res.GivenUp() || w.Body.String() != event+string(openai.UpstreamLost().Event()) {
		t.Fatalf("result %+v, body %q", res, w.Body)
	}
}

const stated = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n"

// newAsker is a front that asks for usage on its client's behalf; refused counts the places that would not have it.
func newAsker(t *testing.T, refused *atomic.Int64, meter *openai.StreamMeter, worker http.HandlerFunc) *httptest.Server {
	t.Helper()
	back := httptest.NewServer(worker)
	tr := relay.NewTransport(nil)
	f, original := &relay.Forwarder{Transport: tr}, openai.WordingOf([]byte("original"))
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := relay.Outbound(r.Context(), r, back.URL, []byte("asking"), nil)
		if err != nil {
			t.Error(err)
			return
		}
		_ = f.ForwardAs(r.Context(), w, req, meter, relay.Options{
			HideUsage: true, Original: &original, Refused: func() { refused.Add(1) },
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

func TestForwardHidesTheUsageFromTheClientAndNotFromTheMeter(t *testing.T) {
	for name, tc := range map[string]struct {
		header http.Header
		want   string
	}{
		"a stream":           {nil, event + "data: [DONE]\n\n"},
		"with a length":      {http.Header{"Content-Length": {strconv.Itoa(len(event + stated + "data: [DONE]\n\n"))}}, event + "data: [DONE]\n\n"},
		"an encoded stream":  {http.Header{"Content-Encoding": {"br"}}, event + stated + "data: [DONE]\n\n"},
		"not a stream":       {http.Header{"Content-Type": {"text/plain"}}, event + stated + "data: [DONE]\n\n"},
		"cut before the end": {http.Header{"X-Cut": {"1"}}, event + "data: [DONE]\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var refused atomic.Int64
			var meter openai.StreamMeter
			front := newAsker(t, &refused, &meter, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for k, v := range tc.header {
					w.Header()[k] = v
				}
				_, _ = io.WriteString(w, event+stated[:10])
				w.(http.Flusher).Flush()
				_, _ = io.WriteString(w, stated[10:]+"data: [DONE]\n\n")
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

func TestForwardSendsTheOriginalToAPlaceThatRefusesTheQuestionForUsage(t *testing.T) {
	for name, tc := range map[string]struct {
		status  int
		body    string
		refused int64
		got     string
	}{
		"named":           {400, `{"error":{"param":"stream_options"}}`, 1, event},
		"unprocessable":   {422, `{"detail":[{"loc":["body","stream_options","include_usage"]}]}`, 1, event},
		"another mistake": {400, `{"error":{"message":"the prompt is too long"}}`, 0, `{"error":{"message":"the prompt is too long"}}`},
		"long":            {400, strings.Repeat("x", 100<<10), 0, strings.Repeat("x", 100<<10)},
		"overloaded":      {503, `stream_options`, 0, `stream_options`},
	} {
		t.Run(name, func(t *testing.T) {
			var refused atomic.Int64
			front := newAsker(t, &refused, &openai.StreamMeter{}, func(w http.ResponseWriter, r *http.Request) {
				if body, _ := io.ReadAll(r.Body); string(body) != "original" {
					w.WriteHeader(tc.status)
					_, _ = io.WriteString(w, tc.body)
					return
				}
				events(w, event)
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
