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

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/memnet"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// lab is a network in memory inside a bubble, with workers that tell of their caches and routers in front of them.
type lab struct {
	*testing.T
	net    *memnet.Net
	hosts  int
	client *http.Client
	// late is how long what events tell takes, and events where they come from.
	late   time.Duration
	events map[string]bool
}

// lateConn gives what it reads only after a while.
type lateConn struct {
	net.Conn
	late time.Duration
}

func (c *lateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(c.late)
	return n, err
}

// view is a router's of the network.
type view struct {
	*memnet.Host
	lab *lab
}

func (v view) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := v.Host.DialContext(ctx, network, address)
	if err == nil && v.lab.late > 0 && v.lab.events[address] {
		c = &lateConn{c, v.lab.late}
	}
	return c, err
}

// inLab runs a test in virtual time: what a busy machine does to it is nothing.
func inLab(t *testing.T, run func(*lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{T: t, net: &memnet.Net{}, events: map[string]bool{}}
		l.client = &http.Client{Transport: &http.Transport{DialContext: l.net.DialContext, DisableKeepAlives: true}}
		run(l)
	})
}

// host is an address that nobody has yet.
func (l *lab) host() string {
	l.hosts++
	return fmt.Sprintf("10.0.0.%d:8000", l.hosts)
}

// engine starts a worker of that many times life's speed.
func (l *lab) engine(arrays bool, speed float64) *gpu.Server {
	l.Helper()
	c := gpu.Config{GPU: "L4", Model: "Llama-3.1-8B", Served: "m", Speed: speed, KVArrays: arrays}
	var errs [3]error
	c.Listener, errs[0] = l.net.Listen(l.host())
	c.KVEventsListener, errs[1] = l.net.Listen(l.host())
	c.KVReplayListener, errs[2] = l.net.Listen(l.host())
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
	l.events[c.KVEventsListener.Addr().String()] = true
	return s
}

// router starts an agent over one worker.
func (l *lab) router(w discover.Worker) *local.Agent {
	l.Helper()
	a := start(l.T, func(c *local.Config) {
		w.Name, w.GPU, w.Models = "w", "L4", []string{"m"}
		c.ScrapeInterval = time.Second
		c.Workers = []discover.Worker{w}
		c.Listen = l.host()
		c.Network = view{l.net.Host(netip.MustParseAddrPort(c.Listen).Addr()), l}
	})
	l.within(5*time.Second, "the worker is ready", func() bool { return ready(a) == 1 })
	return a
}

// fed is an engine as a router that hears its events knows it.
func fed(s *gpu.Server, replay bool) discover.Worker {
	w := discover.Worker{URL: s.URL(), KVEvents: []string{s.KVEvents()}}
	if replay {
		w.KVReplay = []string{s.KVReplay()}
	}
	return w
}

func (l *lab) within(span time.Duration, what string, ok func() bool) {
	l.Helper()
	for end := time.Now().Add(span); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			l.Fatalf("not within %v: %s", span, what)
		}
	}
}

func (l *lab) post(url, body string) error {
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

func (l *lab) complete(url, prompt string) {
	l.Helper()
	if err := l.post(url+"/v1/completions", completion(prompt)); err != nil {
		l.Fatal(err)
	}
}

// reset empties an engine's cache.
func (l *lab) reset(s *gpu.Server) {
	l.Helper()
	l.within(5*time.Second, "the cache is reset", func() bool { return l.post(s.URL()+"/reset_prefix_cache", "") == nil })
}

// flood sends an engine enough of other people's prompts to push out what it holds.
func (l *lab) flood(s *gpu.Server, name string) {
	l.Helper()
	for i := range 1 + s.Gauges().KVBlocks*16/7000 {
		l.complete(s.URL(), text(fmt.Sprint(name, i), 30000))
	}
}

func address(a *local.Agent) string { return "http://" + a.Addr().String() }

// TestExactModeFollowsTheEngine: a stand-in publishes its cache over ZeroMQ, in both forms, with and without a replay
// socket. What the router believes follows it within a second, each time, where without events it goes on believing. The
// prompt comes in the very instant in which the cache is emptied.
func TestExactModeFollowsTheEngine(t *testing.T) {
	for _, arrays := range []bool{false, true} {
		t.Run(fmt.Sprintf("arrays=%v", arrays), func(t *testing.T) {
			inLab(t, func(l *lab) {
				s := l.engine(arrays, 50)
				exact, guess := l.router(fed(s, arrays)), l.router(discover.Worker{URL: s.URL()})
				prompt := text("one", 16000)
				body := completion(prompt)
				l.complete(address(guess), prompt)
				for i := range 5 {
					l.reset(s)
					l.complete(address(exact), prompt)
					l.within(time.Second, "the prompt is linked", func() bool {
						return exact.Linked("w") > 0 && exact.Believed(body) > 3000 && status(exact, "w").Prefix == "exact"
					})
					if i%2 == 0 {
						l.reset(s)
					} else {
						l.flood(s, fmt.Sprint("other", i))
					}
					l.within(time.Second, "the router knows that the prompt is gone", func() bool { return exact.Believed(body) == 0 })
					if got := guess.Believed(body); got < 3000 {
						t.Fatalf("without events %d tokens are believed: the test shows nothing", got)
					}
				}
			})
		})
	}
}

// TestExactModeErrsLess measures what both modes believe against what the engine says, over conversations on a worker
// whose cache is too small for them and for the traffic of others.
func TestExactModeErrsLess(t *testing.T) {
	ratio := map[bool]float64{}
	for _, events := range []bool{false, true} {
		inLab(t, func(l *lab) {
			s := l.engine(false, 50)
			w := discover.Worker{URL: s.URL()}
			if events {
				w = fed(s, false)
			}
			a := l.router(w)
			if events {
				l.complete(s.URL(), text("first", 400)) // the stream shows itself
				l.within(time.Second, "events are heard", func() bool { return status(a, "w").Prefix == "exact" })
			}
			for round := range 8 {
				for talk := range 5 {
					l.complete(address(a), text(fmt.Sprint("talk", talk), 4000+1500*round))
				}
				time.Sleep(250 * time.Millisecond)
				switch round % 4 {
				case 1:
					l.reset(s)
				case 3:
					l.flood(s, fmt.Sprint("other", round))
				}
				time.Sleep(250 * time.Millisecond)
			}
			l.within(time.Second, "all is booked", func() bool { return idle(a) })
			prompt, over, under := a.Hits(events)
			ratio[events] = (over + under) / prompt
			t.Logf("events=%v: %.0f prompt tokens, believed %.0f too many and %.0f too few: error %.1f %%", events, prompt, over, under, 100*ratio[events])
		})
	}
	if ratio[true] > ratio[false]/2 {
		t.Errorf("exact mode errs by %.3f of the prompt, the guess by %.3f", ratio[true], ratio[false])
	}
}

// TestAClearLeavesWhatIsUnderWay: a prompt that was sent and is not answered yet will be in the cache that was emptied
// before it came.
func TestAClearLeavesWhatIsUnderWay(t *testing.T) {
	inLab(t, func(l *lab) {
		s := l.engine(false, 1)
		l.late = 30 * time.Millisecond
		a := l.router(fed(s, false))
		prompt := text("one", 16000)
		l.complete(s.URL(), prompt)
		l.within(time.Second, "events are heard", func() bool { return status(a, "w").Prefix == "exact" })
		l.reset(s)
		var wg sync.WaitGroup
		wg.Go(func() { l.complete(address(a), prompt) })
		time.Sleep(2500 * time.Millisecond) // it is being decoded
		if got := a.Believed(completion(prompt)); got < 3000 || idle(a) {
			l.Errorf("%d tokens are believed of a prompt under way", got)
		}
		wg.Wait()
	})
}

// TestEveryRankIsFollowed: a worker of two data-parallel engines publishes two streams, and hands requests to either. The
// router knows what both hold, and that one of them was emptied.
func TestEveryRankIsFollowed(t *testing.T) {
	inLab(t, func(l *lab) {
		ranks := []*gpu.Server{l.engine(false, 50), l.engine(true, 50)}
		var next atomic.Int64
		front := &httputil.ReverseProxy{Transport: l.client.Transport, Rewrite: func(r *httputil.ProxyRequest) {
			n := 0
			if r.Out.Method == http.MethodPost {
				n = int(next.Add(1)) % len(ranks)
			}
			r.Out.URL.Scheme, r.Out.URL.Host = "http", ranks[n].Addr().String()
		}}
		listener, err := l.net.Listen(l.host())
		if err != nil {
			l.Fatal(err)
		}
		h := &http.Server{Handler: front}
		go h.Serve(listener)
		l.Cleanup(func() { h.Close() })
		w := discover.Worker{URL: "http://" + listener.Addr().String()}
		for _, s := range ranks {
			w.KVEvents, w.KVReplay = append(w.KVEvents, s.KVEvents()), append(w.KVReplay, s.KVReplay())
		}
		a := l.router(w)
		l.within(time.Second, "both ranks are heard", func() bool { return status(a, "w").Prefix == "exact" })
		prompts := []string{text("one", 16000), text("two", 17000)}
		believed := func(i int) int64 { return a.Believed(completion(prompts[i])) }
		next.Store(-1)
		for i := range prompts {
			l.complete(address(a), prompts[i])
		}
		l.within(time.Second, "both prompts are linked", func() bool { return a.Claimed("w")["linked"] == 2 })
		if believed(0) < 3000 || believed(1) < 3000 {
			l.Fatalf("%d and %d tokens are believed", believed(0), believed(1))
		}
		l.reset(ranks[1])
		l.within(time.Second, "the second rank is known to be empty", func() bool { return believed(1) == 0 })
		if believed(0) < 3000 {
			l.Fatalf("%d tokens are believed of the rank that was not emptied", believed(0))
		}
		l.flood(ranks[0], "other")
		l.within(time.Second, "the first rank is known to have evicted", func() bool { return believed(0) == 0 })
	})
}

// talk is a conversation that grows by a turn each time.
type talk struct {
	name  string
	bytes int
}

// TestMostPromptsAreLinked: many clients at once, whose prompts are of all lengths or all of the same, in conversations or
// not, and others who use the worker beside the router.
func TestMostPromptsAreLinked(t *testing.T) {
	for _, c := range []struct {
		name          string
		least, spread int // bytes of a first prompt
		turns         int
		foreign       float64 // part of the requests that go past the router
		rate          float64 // requests/s
		known         float64 // part of the prompts that are to be known at once
	}{
		{"singles", 400, 12000, 1, 0, 1, 0.97},
		{"singles of one length", 4000, 1, 1, 0, 2, 0.9},
		{"talks", 400, 6000, 6, 0, 2, 0.93},
		{"talks beside others", 400, 6000, 6, 0.3, 2, 0.93},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				s := l.engine(false, 1)
				a := l.router(fed(s, false))
				l.complete(s.URL(), text("first", 400))
				l.within(time.Second, "events are heard", func() bool { return status(a, "w").Prefix == "exact" })
				rng := rand.New(rand.NewPCG(1, 2))
				var wg sync.WaitGroup
				for i := range 200 {
					talk := &talk{name: fmt.Sprint("talk", i/c.turns), bytes: 0}
					r := rand.New(rand.NewPCG(uint64(i/c.turns), 3))
					talk.bytes = c.least + r.IntN(c.spread)
					for range i % c.turns {
						talk.bytes += 200 + r.IntN(1500)
					}
					to := address(a)
					if rng.Float64() < c.foreign {
						to = s.URL()
					}
					wg.Go(func() {
						body := strings.Replace(completion(text(talk.name, talk.bytes)), `"max_tokens"`, `"stream":true,"max_tokens"`, 1)
						if err := l.post(to+"/v1/completions", body); err != nil {
							t.Error(err)
						}
					})
					time.Sleep(time.Duration(rng.ExpFloat64() / c.rate * float64(time.Second)))
				}
				wg.Wait()
				time.Sleep(3 * time.Second)
				prompt, over, under := a.Hits(true)
				claimed := a.Claimed("w")
				t.Logf("%v; %.0f prompt tokens, %.0f believed too many, %.0f too few: %.1f %%", claimed, prompt, over, under, 100*(over+under)/max(prompt, 1))
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
