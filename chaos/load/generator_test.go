package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// burstSource is n small requests, one every gap.
type burstSource struct {
	left int
	gap  time.Duration
	at   time.Duration
}

func (b *burstSource) NextArrival() (Arrival, error) {
	if b.left == 0 {
		return Arrival{}, io.EOF
	}
	b.left--
	b.at += b.gap
	return Arrival{At: b.at, Prompt: []Piece{{ID: uint64(b.left), Tokens: 8}}, Output: 4}, nil
}

func runGenerator(t testing.TB, c Config) *LoadReport {
	t.Helper()
	g := newTestGenerator(t, c)
	if err := g.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	r := g.CurrentReport()
	if r.InFlight != 0 || r.Sent != r.OK+r.Refused+r.Cut+r.Lost+r.NoAddress+r.Abandoned {
		t.Errorf("the account does not add up: %+v", r)
	}
	return r
}

func newTestGenerator(t testing.TB, c Config) *Generator {
	t.Helper()
	if c.Models == nil {
		c.Models = []string{"m"}
	}
	g, err := NewGenerator(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func startTestServer(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// streamTokens streams n tokens, and the end of the stream if done.
func streamTokens(w http.ResponseWriter, n int, done bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Spillway-Route", "virginia/a/w1")
	for i := range n {
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"w%d \"}}]}\n\n", i)
		w.(http.Flusher).Flush()
	}
	if done {
		fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", n)
	}
}

func TestStreamsAreCounted(t *testing.T) {
	s := startTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		want := `"max_tokens":4,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`
		if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer k" || !strings.HasSuffix(string(body), want) {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		streamTokens(w, 4, true)
	})
	r := runGenerator(t, Config{Source: &burstSource{left: 5, gap: time.Millisecond}, Target: Target{URLs: []string{s.URL}}, Key: "k", Stream: true})
	if r.OK != 5 || len(r.Regions) != 1 || r.Regions[0].Name != "virginia" {
		t.Fatalf("%+v", r)
	}
	v := r.Regions[0]
	if v.OutputTokens != 20 || v.PromptTokens != 40 || v.TTFT.Count != 5 || v.ITL.Count != 15 || v.Total.Count != 5 {
		t.Errorf("%+v", v)
	}
}

func TestRefusalsAreCountedByCodeAndNeverTimed(t *testing.T) {
	var n atomic.Int64
	s := startTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			io.WriteString(w, `{"error":{"message":"m","type":"InternalServerError","code":500}}`)
			return
		}
		w.WriteHeader(http.StatusTooManyRequests)
		io.WriteString(w, `{"error":{"message":"m","type":"t","code":"requests_per_minute"}}`)
	})
	r := runGenerator(t, Config{Source: &burstSource{left: 6, gap: time.Millisecond}, Target: Target{URLs: []string{s.URL}}, Stream: true})
	if r.Refused != 6 || r.OK != 0 || r.Retried != 0 || r.CountErrors() != 6 {
		t.Fatalf("%+v", r)
	}
	want := []CodeCount{{"refused", 429, "requests_per_minute", 4}, {"refused", 500, "InternalServerError", 2}}
	if len(r.Codes) != 2 || r.Codes[0] != want[0] || r.Codes[1] != want[1] {
		t.Errorf("codes %+v", r.Codes)
	}
	if v := r.Regions[0]; v.TTFT.Count+v.Total.Count+v.ITL.Count != 0 {
		t.Errorf("a refusal counts as a fast answer: %+v", v)
	}
}

func TestInterruptedStreamsAreNotRetried(t *testing.T) {
	var n atomic.Int64
	for name, end := range map[string]func(http.ResponseWriter){
		"connection dies": func(w http.ResponseWriter) { streamTokens(w, 2, false); panic(http.ErrAbortHandler) },
		"ends too early":  func(w http.ResponseWriter) { streamTokens(w, 2, false) },
		"carries error": func(w http.ResponseWriter) {
			streamTokens(w, 2, false)
			io.WriteString(w, "data: {\"error\":{\"message\":\"x\",\"code\":\"upstream_lost\"}}\n\ndata: [DONE]\n\n")
		},
		"dies after its head": func(w http.ResponseWriter) {
			streamTokens(w, 0, false)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n.Store(0)
			h := func(w http.ResponseWriter, _ *http.Request) { n.Add(1); end(w) }
			one, two := startTestServer(t, h), startTestServer(t, h)
			r := runGenerator(t, Config{Source: &burstSource{left: 1}, Target: Target{URLs: []string{one.URL, two.URL}}, Stream: true})
			if r.Cut != 1 || r.Retried != 0 || n.Load() != 1 {
				t.Errorf("cut %d, retried %d, sent %d times", r.Cut, r.Retried, n.Load())
			}
			if want := map[bool]string{true: "upstream_lost", false: "connection"}[name == "carries error"]; r.Codes[0].Code != want {
				t.Errorf("code %q, want %q", r.Codes[0].Code, want)
			}
		})
	}
}

// unusedAddr is an address without a listener.
func unusedAddr(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestUnansweredRequestsAreRetriedElsewhere(t *testing.T) {
	dying := startTestServer(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	good := startTestServer(t, func(w http.ResponseWriter, _ *http.Request) { streamTokens(w, 4, true) })
	for _, bad := range []string{dying.URL, "http://" + unusedAddr(t)} {
		r := runGenerator(t, Config{Source: &burstSource{left: 4}, Target: Target{URLs: []string{bad, good.URL}}, Stream: true})
		if r.OK != 4 || r.Retried != 2 || r.Lost != 0 {
			t.Errorf("ok %d, retried %d, lost %d; want 4, 2, 0", r.OK, r.Retried, r.Lost)
		}
		r = runGenerator(t, Config{Source: &burstSource{left: 4}, Target: Target{URLs: []string{bad}}, Stream: true})
		if r.Lost != 4 || r.Retried != 0 {
			t.Errorf("with nowhere else to go: lost %d, retried %d", r.Lost, r.Retried)
		}
		r = runGenerator(t, Config{Source: &burstSource{left: 4}, Target: Target{URLs: []string{bad, good.URL}}, Stream: true, Retries: -1})
		if r.Lost != 2 || r.OK != 2 || r.Retried != 0 {
			t.Errorf("without retries: lost %d, ok %d, retried %d", r.Lost, r.OK, r.Retried)
		}
	}
}

func portNumber(t testing.TB, rawURL string) int {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestServiceIsResolvedThroughDNS(t *testing.T) {
	var host atomic.Value
	s := startTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		host.Store(r.Host)
		streamTokens(w, 4, true)
	})
	port := portNumber(t, s.URL)
	names := startNameServer(t, 60, 0, "127.0.0.1")
	r := runGenerator(t, Config{
		Source: &burstSource{left: 10, gap: 5 * time.Millisecond}, Stream: true,
		Target: Target{Service: "chat.api.example", DNS: []string{names.addr()}, Port: port},
	})
	if r.OK != 10 || r.DNS.Resolutions < 1 || r.DNS.Resolutions+r.DNS.Cached != 10 || r.DNS.FailedQueries != 0 {
		t.Errorf("%+v", r)
	}
	if want := fmt.Sprintf("chat.api.example:%d", port); host.Load() != want {
		t.Errorf("Host %q, want %q", host.Load(), want)
	}
}

// The address in the answer dies; while the request is retried, DNS changes.
func TestRetriesResolveServiceAgain(t *testing.T) {
	if probe, err := net.Listen("tcp", "127.0.5.2:0"); err != nil {
		t.Skip("this system has only one loopback address")
	} else {
		probe.Close()
	}
	s := startTestServer(t, func(w http.ResponseWriter, _ *http.Request) { streamTokens(w, 4, true) })
	names := startNameServer(t, 60, 0, "127.0.5.2") // no listener there
	names.afterQuery.Store(new(func(n int64) {
		if n == 2 {
			names.setAddrs("127.0.0.1")
		}
	}))
	r := runGenerator(t, Config{
		Source: &burstSource{left: 1}, Stream: true, Clients: []Client{{Source: netip.MustParseAddr("127.0.0.1")}},
		Target: Target{Service: "chat.api.example", DNS: []string{names.addr()}, Port: portNumber(t, s.URL)},
	})
	if r.OK != 1 || r.Retried != 1 {
		t.Errorf("ok %d, retried %d, lost %d", r.OK, r.Retried, r.Lost)
	}
}

func TestRequestWithoutAddressIsCounted(t *testing.T) {
	names := startNameServer(t, 0, 3) // NXDOMAIN
	r := runGenerator(t, Config{Source: &burstSource{left: 2}, Target: Target{Service: "x.example", DNS: []string{names.addr()}}})
	if r.NoAddress != 2 || r.DNS.FailedResolutions != 2 {
		t.Errorf("%+v", r)
	}
}

func TestRedirectToOtherHostDropsKey(t *testing.T) {
	var direct, keys atomic.Int64
	port := new(atomic.Int64)
	s := startTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Host, "chat.") {
			w.Header().Set("Location", fmt.Sprintf("http://virginia.%s/v1/chat/completions?spw=t", r.Host))
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		direct.Add(1)
		if r.Header.Get("Authorization") != "" {
			keys.Add(1)
		}
		if body, _ := io.ReadAll(r.Body); r.URL.Query().Get("spw") != "t" || len(body) == 0 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		streamTokens(w, 4, true)
	})
	port.Store(int64(portNumber(t, s.URL)))
	names := startNameServer(t, 60, 0, "127.0.0.1")
	r := runGenerator(t, Config{
		Source: &burstSource{left: 3}, Stream: true, Key: "k",
		Target: Target{Service: "chat.api.example", DNS: []string{names.addr()}, Port: int(port.Load())},
	})
	if r.OK != 3 || r.Redirected != 3 || direct.Load() != 3 || keys.Load() != 0 {
		t.Errorf("ok %d, redirected %d, arrived %d, with key %d", r.OK, r.Redirected, direct.Load(), keys.Load())
	}
}

func TestOpenLoopDoesNotWaitForAnswers(t *testing.T) {
	release := make(chan struct{})
	var inside atomic.Int64
	s := startTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
		inside.Add(1)
		<-release
		streamTokens(w, 4, true)
	})
	g := newTestGenerator(t, Config{Source: &burstSource{left: 12, gap: time.Millisecond}, Target: Target{URLs: []string{s.URL}}, Stream: true, MaxInFlight: 10})
	done := make(chan error)
	go func() { done <- g.Run(context.Background()) }()
	testkit.Eventually(t, "10 requests are sent while the first is unanswered, and 2 are skipped", func() bool {
		return inside.Load() >= 10 && g.CurrentReport().Skipped >= 2
	})
	if r := g.CurrentReport(); r.InFlight != 10 || r.Sent != 10 {
		t.Errorf("%+v", r)
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if r := g.CurrentReport(); r.OK != 10 || r.Skipped != 2 {
		t.Errorf("%+v", r)
	}
}

// arrivalList is a source in a slice.
type arrivalList []Arrival

func (l *arrivalList) NextArrival() (Arrival, error) {
	if len(*l) == 0 {
		return Arrival{}, io.EOF
	}
	a := (*l)[0]
	*l = (*l)[1:]
	return a, nil
}

func TestInterruptedRunAbandonsRequests(t *testing.T) {
	arrived := make(chan struct{})
	s := startTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // only then does the server detect that the client left
		close(arrived)
		<-r.Context().Done()
	})
	// The second request is due long after the end: the grace period starts with the interruption, even if the first
	// arrives late.
	source := &arrivalList{{Prompt: []Piece{{ID: 1, Tokens: 8}}, Output: 4}, {At: 24 * time.Hour, Prompt: []Piece{{ID: 2, Tokens: 8}}, Output: 4}}
	g := newTestGenerator(t, Config{Source: source, Target: Target{URLs: []string{s.URL}}, Grace: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-arrived
		cancel()
	}()
	if err := g.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if r := g.CurrentReport(); r.Abandoned != 1 || r.CountErrors() != 0 {
		t.Errorf("%+v", r)
	}
}

type badSource struct{}

func (badSource) NextArrival() (Arrival, error) { return Arrival{}, errors.New("line 7: broken") }

func TestSourceErrorsAreReturned(t *testing.T) {
	g := newTestGenerator(t, Config{Source: badSource{}, Target: Target{URLs: []string{"http://127.0.0.1:1"}}})
	if err := g.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "line 7: broken") {
		t.Errorf("%v", err)
	}
}

func TestNewGeneratorRejectsBadConfig(t *testing.T) {
	ok := func() Config {
		return Config{Source: &burstSource{}, Models: []string{"m"}, Target: Target{URLs: []string{"http://127.0.0.1:1"}}}
	}
	for says, change := range map[string]func(*Config){
		"a source":        func(c *Config) { c.Source = nil },
		"one model":       func(c *Config) { c.Models = nil },
		"either URLs or":  func(c *Config) { c.Target = Target{} },
		"not a base URL":  func(c *Config) { c.Target.URLs = []string{"ftp://x"} },
		"DNS servers":     func(c *Config) { c.Target = Target{Service: "x"} },
		"127.0.0.1:53":    func(c *Config) { c.Target = Target{Service: "x", DNS: []string{"nonsense"}} },
		"use 1 to 65535":  func(c *Config) { c.Target = Target{Service: "x", DNS: []string{"127.0.0.1"}, Port: 70000} },
		"http or https":   func(c *Config) { c.Target = Target{Service: "x", DNS: []string{"127.0.0.1"}, Scheme: "gopher"} },
		"/v1/completions": func(c *Config) { c.Path = "/v1/embeddings" },
	} {
		c := ok()
		change(&c)
		if _, err := NewGenerator(c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}

func TestGeneratorAgainstSimulatedWorker(t *testing.T) {
	worker, err := gpu.New(gpu.Config{Listen: "127.0.0.1:0", GPU: "H100", Model: "Llama-3.1-8B", Speed: 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer worker.Stop(context.Background())
	for _, stream := range []bool{true, false} {
		source := ScaleSource(openTrace(t, "testdata/mooncake.jsonl", 1), Scale{Rate: 60, MaxOutput: 30})
		r := runGenerator(t, Config{Source: source, Target: Target{URLs: []string{worker.URL()}}, Models: []string{"Llama-3.1-8B"}, Stream: stream, Path: "/v1/completions"})
		want := readAllArrivals(t, ScaleSource(openTrace(t, "testdata/mooncake.jsonl", 1), Scale{Rate: 60, MaxOutput: 30}))
		var in, out uint64
		for _, a := range want {
			in += uint64(a.PromptTokens())
			out += uint64(a.Output)
		}
		if r.OK != uint64(len(want)) || r.CountErrors() != 0 || r.Regions[0].PromptTokens != in || r.Regions[0].OutputTokens != out {
			t.Errorf("stream %v: %d of %d ok, %d and %d tokens of %d and %d", stream, r.OK, len(want), r.Regions[0].PromptTokens, r.Regions[0].OutputTokens, in, out)
		}
	}
}
