package main

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
)

// faithProbes is how many requests each region is asked before it is loaded, one every faithApart.
const (
	faithProbes = 40
	faithApart  = 125 * time.Millisecond
)

// probes are equal requests at equal times from the first on, each for a prompt of its own.
type probes struct {
	n, most int
	first   time.Duration
}

func (p *probes) Next() (load.Arrival, error) {
	if p.n == p.most {
		return load.Arrival{}, io.EOF
	}
	p.n++
	return load.Arrival{At: p.first + time.Duration(p.n)*faithApart, Prompt: []load.Piece{{ID: uint64(p.n) << 32, Tokens: 900}}, Output: 2}, nil
}

// faithPath measures what the way from a client to an engine and back costs this planet on this machine while nothing else
// is asked: timers, three servers, four connections. It is the mean time to first token as clients see it, from when a
// request was due, less the same as the engines' own clocks have it. The simulator has no processing of its own: it is told.
func faithPath(t *testing.T, w *world) time.Duration {
	t.Helper()
	probe := func(n int) (ttft time.Duration, count int) {
		var mu sync.Mutex
		var running sync.WaitGroup
		for i, gw := range w.Of("regional") {
			cfg := faithClient(t, w, gw.Addr["http"].String(), &probes{most: n, first: time.Duration(i) * faithApart / 3}) // one region after another
			cfg.OnOutcome = func(o load.Outcome) {
				mu.Lock()
				defer mu.Unlock()
				if o.Verdict == "ok" {
					ttft, count = ttft+o.First.Sub(o.Due), count+1
				}
			}
			g, err := load.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() {
				if err := g.Run(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
		return ttft, count
	}
	probe(4) // makes connections
	before, began := engineTTFT(t, w)
	seen, n := probe(faithProbes)
	after, ended := engineTTFT(t, w)
	if n == 0 || ended-began != n {
		t.Fatalf("%d probes were answered, and engines have begun %d answers", n, ended-began)
	}
	return (seen-(after-before))/time.Duration(n) - gpu.PerToken
}

// engineTTFT adds up all workers' own times to first token, and says how many there were.
func engineTTFT(t *testing.T, w *world) (sum time.Duration, n int) {
	t.Helper()
	for _, x := range w.Of("worker") {
		page, err := fetch(http.DefaultClient, fmt.Sprintf("http://%s/metrics", x.Addr["http"]))
		if err != nil {
			t.Fatal(err)
		}
		seconds, err := sample(page, "vllm:time_to_first_token_seconds_sum{")
		if err != nil {
			t.Fatal(err)
		}
		count, err := sample(page, "vllm:time_to_first_token_seconds_count{")
		if err != nil {
			t.Fatal(err)
		}
		sum, n = sum+time.Duration(seconds*float64(time.Second)), n+int(count)
	}
	return sum, n
}
