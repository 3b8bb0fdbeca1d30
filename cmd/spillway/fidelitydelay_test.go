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

// probeCount is the number of requests to each region before it is loaded, one every probeInterval.
const (
	probeCount    = 40
	probeInterval = 125 * time.Millisecond
)

// probeSource returns requests of equal length at equal intervals from startAt on, each with a different prompt.
type probeSource struct {
	sent, total int
	startAt     time.Duration
}

func (p *probeSource) NextArrival() (load.Arrival, error) {
	if p.sent == p.total {
		return load.Arrival{}, io.EOF
	}
	p.sent++
	return load.Arrival{At: p.startAt + time.Duration(p.sent)*probeInterval, Prompt: []load.Piece{{ID: uint64(p.sent) << 32, Tokens: 900}}, Output: 2}, nil
}

// measurePathDelay measures the delay between client and engine, both ways, on this machine without other load: timers, three
// servers and four connections. It is the mean time to first token measured by clients, from the scheduled time of a request,
// minus that measured by the engines. The simulator does not model this delay and gets it as a parameter.
func measurePathDelay(t *testing.T, w *inProcessFleet) time.Duration {
	t.Helper()
	probe := func(n int) (ttft time.Duration, count int) {
		var mu sync.Mutex
		var running sync.WaitGroup
		for i, gw := range w.NodesByRole("regional") {
			cfg := newFidelityClientConfig(t, w, gw.Addr["http"].String(), &probeSource{total: n, startAt: time.Duration(i) * probeInterval / 3}) // one region after another
			cfg.OnOutcome = func(o load.RequestOutcome) {
				mu.Lock()
				defer mu.Unlock()
				if o.Kind == "ok" {
					ttft, count = ttft+o.First.Sub(o.Due), count+1
				}
			}
			g, err := load.NewGenerator(cfg)
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
	probe(4) // establishes connections
	before, began := sumEngineTTFT(t, w)
	seen, n := probe(probeCount)
	after, ended := sumEngineTTFT(t, w)
	if n == 0 || ended-began != n {
		t.Fatalf("%d probes were answered, and engines began %d answers", n, ended-began)
	}
	return (seen-(after-before))/time.Duration(n) - gpu.PerTokenTime
}

// sumEngineTTFT sums the times to first token that all workers measured, and counts them.
func sumEngineTTFT(t *testing.T, w *inProcessFleet) (sum time.Duration, n int) {
	t.Helper()
	for _, x := range w.NodesByRole("worker") {
		page, err := fetchPage(http.DefaultClient, fmt.Sprintf("http://%s/metrics", x.Addr["http"]))
		if err != nil {
			t.Fatal(err)
		}
		seconds, err := readSample(page, "vllm:time_to_first_token_seconds_sum{")
		if err != nil {
			t.Fatal(err)
		}
		count, err := readSample(page, "vllm:time_to_first_token_seconds_count{")
		if err != nil {
			t.Fatal(err)
		}
		sum, n = sum+time.Duration(seconds*float64(time.Second)), n+int(count)
	}
	return sum, n
}
