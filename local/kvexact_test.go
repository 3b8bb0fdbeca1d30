package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
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
}

// inLab runs a test in virtual time: what a busy machine does to it is nothing.
func inLab(t *testing.T, run func(*lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{T: t, net: &memnet.Net{}}
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
	return s
}

// router starts an agent over one worker.
func (l *lab) router(w discover.Worker) *local.Agent {
	l.Helper()
	a := start(l.T, func(c *local.Config) {
		w.Name, w.GPU, w.Models = "w", "L4", []string{"m"}
		c.ScrapeInterval = time.Second
		c.Workers, c.Dial = []discover.Worker{w}, l.net.DialContext
		c.Listener, _ = l.net.Listen(l.host())
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
	}{
		{"singles", 400, 12000, 1, 0, 1},
		{"singles of one length", 4000, 1, 1, 0, 2},
		{"talks", 400, 6000, 6, 0, 2},
		{"talks beside others", 400, 6000, 6, 0.3, 2},
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
				t.Logf("%v; %.0f prompt tokens, %.0f believed too many, %.0f too few: %.1f %%", a.Claimed("w"), prompt, over, under, 100*(over+under)/prompt)
			})
		})
	}
}
