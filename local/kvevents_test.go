package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// newKVEventWorker starts a worker with a small cache that publishes cache events.
func newKVEventWorker(t *testing.T) *gpu.Server {
	t.Helper()
	s, err := gpu.New(gpu.Config{
		Listen: "127.0.0.1:0", GPU: "L4", Model: "Llama-3.1-8B", ServedModel: "m", Speed: 50,
		KVEvents: "127.0.0.1:0", KVReplay: "127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		stopWorker(s, ctx)
	})
	return s
}

// stopWorker stops a worker that may have been stopped before.
func stopWorker(s *gpu.Server, ctx context.Context) {
	if c, err := net.Dial("tcp", s.Addr().String()); err == nil {
		c.Close()
		_ = s.Stop(ctx)
	}
}

// startKVEventAgent starts an agent that receives one simulated worker's events.
func startKVEventAgent(t *testing.T, s *gpu.Server) *local.Agent {
	t.Helper()
	a := startAgent(t, func(c *local.Config) {
		c.Workers = []discover.Worker{{Name: "w", URL: s.URL(), GPU: "L4", Models: []string{"m"}, KVEvents: []string{s.KVEventsURL()}}}
	})
	testkit.Eventually(t, "the worker is ready", func() bool { return countReady(a) == 1 })
	return a
}

// makePrompt returns a prompt of n bytes that shares no prefix with one of another name.
func makePrompt(name string, n int) string {
	return strings.Repeat(name+" and so on. ", n/(len(name)+12)+1)[:n]
}

func completionBody(prompt string) string {
	return `{"model":"m","max_tokens":40,"ignore_eos":true,"prompt":"` + prompt + `"}`
}

func postCompletion(t *testing.T, url, prompt string) {
	t.Helper()
	resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(completionBody(prompt)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Fatalf("%d: %s", resp.StatusCode, b)
	}
}

// TestLostKVEventsFallBackToApproximate: when the event stream ends, the index becomes approximate and status shows
// it.
func TestLostKVEventsFallBackToApproximate(t *testing.T) {
	s := newKVEventWorker(t)
	a := startKVEventAgent(t, s)
	if got := workerStatus(a, "w").Prefix; got != "approximate: no events yet" {
		t.Errorf("before any event the mode is %q", got)
	}
	postCompletion(t, s.URL(), makePrompt("first", 400))
	testkit.Eventually(t, "events are heard", func() bool { return workerStatus(a, "w").Prefix == "exact" })
	dead, cancel := context.WithCancel(context.Background())
	cancel()
	stopWorker(s, dead)
	testkit.Eventually(t, "the loss of the events is noticed", func() bool { return workerStatus(a, "w").Prefix == "approximate: event stream lost" })
}

// TestEngineRestartClearsItsPrefixes: when the counters of a worker go back, its prefixes are removed from the index.
func TestEngineRestartClearsItsPrefixes(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	w.kvBlocks = 100_000
	w.generatedTokens.Store(1000)
	var cfg local.Config
	a := startAgent(t, func(c *local.Config) { cfg = *c }, w)
	testkit.Eventually(t, "its counters are known", func() bool { return workerStatus(a, "w1").KVTotal == 1_600_000 })
	body := `{"model":"llama-3.1-8b","messages":[{"role":"user","content":"` + strings.Repeat("word ", 1000) + `"}]}`
	if resp, text := postChat(t, a, body); resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	if n := sumMetric(t, cfg, "spillway_local_prefix_index_blocks"); n < 10 {
		t.Fatalf("%v blocks are known of a prompt of 5 KB", n)
	}
	w.generatedTokens.Store(3)
	testkit.Eventually(t, "the index is empty", func() bool { return sumMetric(t, cfg, "spillway_local_prefix_index_blocks") == 0 })
}

// memCluster is an in-memory network inside a synctest bubble, with workers that publish cache events and routers for
// them.
type memCluster struct {
	*testing.T
	network  *fleet.MemoryNetwork
	nextHost int
	client   *http.Client
	// eventDelay is the latency of cache events, and eventAddresses are the addresses that publish them.
	eventDelay     time.Duration
	eventAddresses map[string]bool
}

// delayedConn delays what it reads.
type delayedConn struct {
	net.Conn
	delay time.Duration
}

func (c *delayedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(c.delay)
	return n, err
}

// memDialer is a router's access to the network.
type memDialer struct {
	*fleet.MemoryHost
	cluster *memCluster
}

func (v memDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := v.MemoryHost.DialContext(ctx, network, address)
	if err == nil && v.cluster.eventDelay > 0 && v.cluster.eventAddresses[address] {
		c = &delayedConn{c, v.cluster.eventDelay}
	}
	return c, err
}

// runInMemory runs a test in virtual time, so that a busy machine does not affect it.
func runInMemory(t *testing.T, run func(*memCluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &memCluster{T: t, network: &fleet.MemoryNetwork{}, eventAddresses: map[string]bool{}}
		l.client = &http.Client{Transport: &http.Transport{DialContext: l.network.DialContext, DisableKeepAlives: true}}
		run(l)
	})
}

// newHost returns an unused address.
func (l *memCluster) newHost() string {
	l.nextHost++
	return fmt.Sprintf("10.0.0.%d:8000", l.nextHost)
}

// startEngine starts a simulated worker with the given multiple of real speed.
func (l *memCluster) startEngine(arrays bool, speed float64) *gpu.Server {
	l.Helper()
	c := gpu.Config{GPU: "L4", Model: "Llama-3.1-8B", ServedModel: "m", Speed: speed, KVArrays: arrays}
	var errs [3]error
	c.Listener, errs[0] = l.network.Listen(l.newHost())
	c.KVEventsListener, errs[1] = l.network.Listen(l.newHost())
	c.KVReplayListener, errs[2] = l.network.Listen(l.newHost())
	s, err := gpu.New(c)
	if err = errors.Join(errs[0], errs[1], errs[2], err); err != nil {
		l.Fatal(err)
	}
	if err := s.Start(context.Background()); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		dead, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Stop(dead)
	})
	l.eventAddresses[c.KVEventsListener.Addr().String()] = true
	return s
}

// startRouter starts an agent over one worker.
func (l *memCluster) startRouter(w discover.Worker) *local.Agent {
	l.Helper()
	a := startAgent(l.T, func(c *local.Config) {
		w.Name, w.GPU, w.Models = "w", "L4", []string{"m"}
		c.ScrapeInterval = time.Second
		c.Workers = []discover.Worker{w}
		c.Listen = l.newHost()
		c.Network = memDialer{l.network.HostAt(netip.MustParseAddrPort(c.Listen).Addr()), l}
	})
	l.waitWithin(5*time.Second, "the worker is ready", func() bool { return countReady(a) == 1 })
	return a
}

// startFakeVLLM starts a worker with modes in which it misbehaves.
func (l *memCluster) startFakeVLLM(name string) *fakeVLLM {
	l.Helper()
	ln, err := l.network.Listen(l.newHost())
	if err != nil {
		l.Fatal(err)
	}
	return newFakeVLLMAt(l.T, name, ln)
}

// startAgentOver starts an agent over such workers.
func (l *memCluster) startAgentOver(change func(*local.Config), workers ...*fakeVLLM) *local.Agent {
	l.Helper()
	return startAgent(l.T, func(c *local.Config) {
		c.Listen = l.newHost()
		c.Network = memDialer{l.network.HostAt(netip.MustParseAddrPort(c.Listen).Addr()), l}
		if change != nil {
			change(c)
		}
	}, workers...)
}

// postChat sends a chat and reads the whole answer.
func (l *memCluster) postChat(a *local.Agent, body string) (*http.Response, string) {
	l.Helper()
	return postChatWith(l.T, l.client, a, body)
}

// kvEventWorkerSpec declares an engine with its cache events.
func kvEventWorkerSpec(s *gpu.Server, replay bool) discover.Worker {
	w := discover.Worker{URL: s.URL(), KVEvents: []string{s.KVEventsURL()}}
	if replay {
		w.KVReplay = []string{s.KVReplayURL()}
	}
	return w
}

func (l *memCluster) waitWithin(span time.Duration, what string, ok func() bool) {
	l.Helper()
	for end := time.Now().Add(span); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			l.Fatalf("not within %v: %s", span, what)
		}
	}
}

func (l *memCluster) postBody(url, body string) error {
	resp, err := l.client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d: %s", resp.StatusCode, b)
	}
	return err
}

func (l *memCluster) postCompletion(url, prompt string) {
	l.Helper()
	if err := l.postBody(url+"/v1/completions", completionBody(prompt)); err != nil {
		l.Fatal(err)
	}
}

// resetCache empties an engine's cache.
func (l *memCluster) resetCache(s *gpu.Server) {
	l.Helper()
	l.waitWithin(5*time.Second, "the cache is reset", func() bool { return l.postBody(s.URL()+"/reset_prefix_cache", "") == nil })
}

// floodCache sends an engine enough other prompts to evict its cache.
func (l *memCluster) floodCache(s *gpu.Server, name string) {
	l.Helper()
	for i := range 1 + s.Gauges().KVBlocks*16/7000 {
		l.postCompletion(s.URL(), makePrompt(fmt.Sprint(name, i), 30000))
	}
}

func baseURL(a *local.Agent) string { return "http://" + a.Addr().String() }

// TestExactModeFollowsTheEngine: a simulated worker publishes its cache over ZeroMQ, in both forms, with and without
// a replay socket. The router's exact index follows it within a second each time, while the approximate index does
// not change. The prompt arrives at the very moment when the cache is emptied.
func TestExactModeFollowsTheEngine(t *testing.T) {
	for _, arrays := range []bool{false, true} {
		t.Run(fmt.Sprintf("arrays=%v", arrays), func(t *testing.T) {
			runInMemory(t, func(l *memCluster) {
				s := l.startEngine(arrays, 50)
				exact, guess := l.startRouter(kvEventWorkerSpec(s, arrays)), l.startRouter(discover.Worker{URL: s.URL()})
				prompt := makePrompt("one", 16000)
				body := completionBody(prompt)
				l.postCompletion(baseURL(guess), prompt)
				for i := range 5 {
					l.resetCache(s)
					l.postCompletion(baseURL(exact), prompt)
					l.waitWithin(time.Second, "the prompt is linked", func() bool {
						return exact.LinkedBlocks("w") > 0 && exact.PredictedCachedTokens(body) > 3000 && workerStatus(exact, "w").Prefix == "exact"
					})
					if i%2 == 0 {
						l.resetCache(s)
					} else {
						l.floodCache(s, fmt.Sprint("other", i))
					}
					l.waitWithin(time.Second, "the index shows the prompt as evicted", func() bool { return exact.PredictedCachedTokens(body) == 0 })
					if got := guess.PredictedCachedTokens(body); got < 3000 {
						t.Fatalf("without events %d tokens are predicted as cached: the test proves nothing", got)
					}
				}
			})
		})
	}
}

// TestExactModeErrsLessThanApproximate compares the predictions of both modes with the engine's reports, over
// conversations on a worker whose cache is too small for them and for other traffic.
func TestExactModeErrsLessThanApproximate(t *testing.T) {
	ratio := map[bool]float64{}
	for _, events := range []bool{false, true} {
		runInMemory(t, func(l *memCluster) {
			s := l.startEngine(false, 50)
			w := discover.Worker{URL: s.URL()}
			if events {
				w = kvEventWorkerSpec(s, false)
			}
			a := l.startRouter(w)
			if events {
				l.postCompletion(s.URL(), makePrompt("first", 400)) // triggers the first events
				l.waitWithin(time.Second, "events arrive", func() bool { return workerStatus(a, "w").Prefix == "exact" })
			}
			for round := range 8 {
				for talk := range 5 {
					l.postCompletion(baseURL(a), makePrompt(fmt.Sprint("talk", talk), 4000+1500*round))
				}
				time.Sleep(250 * time.Millisecond)
				switch round % 4 {
				case 1:
					l.resetCache(s)
				case 3:
					l.floodCache(s, fmt.Sprint("other", round))
				}
				time.Sleep(250 * time.Millisecond)
			}
			l.waitWithin(time.Second, "all is booked", func() bool { return isIdle(a) })
			prompt, over, under := a.PrefixHitScore(events)
			ratio[events] = (over + under) / prompt
			t.Logf("events=%v: %.0f prompt tokens, %.0f overestimated and %.0f underestimated: error %.1f %%", events, prompt, over, under, 100*ratio[events])
		})
	}
	if ratio[true] > ratio[false]/2 {
		t.Errorf("exact mode errs by %.3f of the prompt, approximate mode by %.3f", ratio[true], ratio[false])
	}
}

// TestCacheClearKeepsPromptsInFlight: an unanswered prompt will be cached by an engine whose cache was emptied before
// the prompt arrived.
func TestCacheClearKeepsPromptsInFlight(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		s := l.startEngine(false, 1)
		l.eventDelay = 30 * time.Millisecond
		a := l.startRouter(kvEventWorkerSpec(s, false))
		prompt := makePrompt("one", 16000)
		l.postCompletion(s.URL(), prompt)
		l.waitWithin(time.Second, "events arrive", func() bool { return workerStatus(a, "w").Prefix == "exact" })
		l.resetCache(s)
		var wg sync.WaitGroup
		wg.Go(func() { l.postCompletion(baseURL(a), prompt) })
		time.Sleep(2500 * time.Millisecond) // while it is being decoded
		if got := a.PredictedCachedTokens(completionBody(prompt)); got < 3000 || isIdle(a) {
			l.Errorf("%d tokens of a prompt in flight are predicted as cached", got)
		}
		wg.Wait()
	})
}

// TestEveryRankIsFollowed: a worker with two data-parallel engines publishes two streams, and sends requests to
// either. The index follows both, and sees one of them emptied.
func TestEveryRankIsFollowed(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		ranks := []*gpu.Server{l.startEngine(false, 50), l.startEngine(true, 50)}
		var next atomic.Int64
		front := &httputil.ReverseProxy{Transport: l.client.Transport, Rewrite: func(r *httputil.ProxyRequest) {
			n := 0
			if r.Out.Method == http.MethodPost {
				n = int(next.Add(1)) % len(ranks)
			}
			r.Out.URL.Scheme, r.Out.URL.Host = "http", ranks[n].Addr().String()
		}}
		listener, err := l.network.Listen(l.newHost())
		if err != nil {
			l.Fatal(err)
		}
		h := &http.Server{Handler: front}
		go h.Serve(listener)
		l.Cleanup(func() { h.Close() })
		w := discover.Worker{URL: "http://" + listener.Addr().String()}
		for _, s := range ranks {
			w.KVEvents, w.KVReplay = append(w.KVEvents, s.KVEventsURL()), append(w.KVReplay, s.KVReplayURL())
		}
		a := l.startRouter(w)
		l.waitWithin(time.Second, "both ranks are heard", func() bool { return workerStatus(a, "w").Prefix == "exact" })
		prompts := []string{makePrompt("one", 16000), makePrompt("two", 17000)}
		predicted := func(i int) int64 { return a.PredictedCachedTokens(completionBody(prompts[i])) }
		next.Store(-1)
		for i := range prompts {
			l.postCompletion(baseURL(a), prompts[i])
		}
		l.waitWithin(time.Second, "both prompts are linked", func() bool { return a.PromptMatchOutcomes("w")["linked"] == 2 })
		if predicted(0) < 3000 || predicted(1) < 3000 {
			l.Fatalf("%d and %d tokens are believed", predicted(0), predicted(1))
		}
		l.resetCache(ranks[1])
		l.waitWithin(time.Second, "the second rank is known to be empty", func() bool { return predicted(1) == 0 })
		if predicted(0) < 3000 {
			l.Fatalf("%d tokens are believed of the rank that was not emptied", predicted(0))
		}
		l.floodCache(ranks[0], "other")
		l.waitWithin(time.Second, "the first rank is known to have evicted", func() bool { return predicted(0) == 0 })
	})
}

// conversation grows by a turn each time.
type conversation struct {
	name  string
	bytes int
}

// TestMostPromptsAreMatchedToCacheEvents: many concurrent clients send prompts of varied or equal lengths, in
// conversations or not, while others use the worker directly.
func TestMostPromptsAreMatchedToCacheEvents(t *testing.T) {
	for _, c := range []struct {
		name          string
		least, spread int // bytes of a first prompt
		turns         int
		foreign       float64 // share of requests that bypass the router
		rate          float64 // requests/s
		known         float64 // minimum share of prompts that are matched at once
	}{
		{"singles", 400, 12000, 1, 0, 1, 0.97},
		{"singles of one length", 4000, 1, 1, 0, 2, 0.9},
		{"talks", 400, 6000, 6, 0, 2, 0.93},
		{"chats next to other load", 400, 6000, 6, 0.3, 2, 0.93},
	} {
		t.Run(c.name, func(t *testing.T) {
			runInMemory(t, func(l *memCluster) {
				s := l.startEngine(false, 1)
				a := l.startRouter(kvEventWorkerSpec(s, false))
				l.postCompletion(s.URL(), makePrompt("first", 400))
				l.waitWithin(time.Second, "events arrive", func() bool { return workerStatus(a, "w").Prefix == "exact" })
				rng := rand.New(rand.NewPCG(1, 2))
				var wg sync.WaitGroup
				for i := range 200 {
					talk := &conversation{name: fmt.Sprint("talk", i/c.turns), bytes: 0}
					r := rand.New(rand.NewPCG(uint64(i/c.turns), 3))
					talk.bytes = c.least + r.IntN(c.spread)
					for range i % c.turns {
						talk.bytes += 200 + r.IntN(1500)
					}
					to := baseURL(a)
					if rng.Float64() < c.foreign {
						to = s.URL()
					}
					wg.Go(func() {
						body := strings.Replace(completionBody(makePrompt(talk.name, talk.bytes)), `"max_tokens"`, `"stream":true,"max_tokens"`, 1)
						if err := l.postBody(to+"/v1/completions", body); err != nil {
							t.Error(err)
						}
					})
					time.Sleep(time.Duration(rng.ExpFloat64() / c.rate * float64(time.Second)))
				}
				wg.Wait()
				time.Sleep(3 * time.Second)
				prompt, over, under := a.PrefixHitScore(true)
				claimed := a.PromptMatchOutcomes("w")
				t.Logf("%v; %.0f prompt tokens, %.0f overestimated, %.0f underestimated: %.1f %%", claimed, prompt, over, under, 100*(over+under)/max(prompt, 1))
				all := 0.0
				for _, n := range claimed {
					all += float64(n)
				}
				if got := float64(claimed["linked"]+claimed["shared"]) / all; all < 100 || got < c.known {
					t.Errorf("%.3f of %.0f prompts are known at once, %.2f are to be", got, all, c.known)
				}
			})
		})
	}
}
