package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
)

// probesPerGateway is the number of requests to each gateway on the idle fleet, the first of which only open connections, and
// pathProbeInterval the time between two.
const (
	probesPerGateway  = 16
	openingProbes     = 4
	pathProbeInterval = 100 * time.Millisecond
)

// measurePath is the time between a client and an engine, there and back, on the idle fleet: the median time to first token of
// clients, minus the mean that engines measured for the same requests.
func (t *target) measurePath(ctx context.Context) (time.Duration, error) {
	if _, err := t.probeGateways(ctx, openingProbes); err != nil {
		return 0, err
	}
	before, began := t.sumEngineTTFT(ctx)
	seen, err := t.probeGateways(ctx, probesPerGateway)
	if err != nil {
		return 0, err
	}
	after, ended := t.sumEngineTTFT(ctx)
	if len(seen) == 0 || ended-began < float64(len(seen)) {
		return 0, fmt.Errorf("clients have %d first tokens, and engines %.0f", len(seen), ended-began)
	}
	engine := time.Duration((after - before) / (ended - began) * float64(time.Second))
	slices.Sort(seen)
	return max(seen[len(seen)/2]-engine-gpu.PerTokenTime, 0), nil
}

// probeGateways sends requests of one length to every gateway in turn and returns the times to first token.
func (t *target) probeGateways(ctx context.Context, n int) ([]time.Duration, error) {
	key, err := t.files.ReadTenantKey(tenantNames[0])
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var seen []time.Duration
	var urls []string
	for _, gw := range t.files.NodesByRole("regional") {
		urls = append(urls, "http://"+gw.Addr["http"].String())
	}
	g := &clientGroup{}
	for i := range n * len(urls) {
		g.requests = append(g.requests, &load.Request{At: time.Duration(i) * pathProbeInterval, Prompt: []load.Piece{{ID: uint64(time.Now().UnixNano()) + uint64(i)<<40, Tokens: 300}}, Output: 2})
	}
	probe, err := load.NewGenerator(load.Config{
		Source: g, Target: load.Target{URLs: urls}, Models: modelNames[:1], Key: key, Path: "/v1/completions", Stream: true, Retries: -1, Timeout: 10 * time.Second,
		OnOutcome: func(o load.RequestOutcome) {
			mu.Lock()
			defer mu.Unlock()
			if o.Kind == "ok" {
				seen = append(seen, o.First.Sub(o.Due))
			}
		},
	})
	if err != nil {
		return nil, err
	}
	err = probe.Run(ctx)
	if len(seen) < len(g.requests) {
		err = errors.Join(err, fmt.Errorf("%d of %d probes were answered", len(seen), len(g.requests)))
	}
	return seen, err
}

// sumEngineTTFT sums the times to first token that all engines measured, in seconds, and counts them.
func (t *target) sumEngineTTFT(ctx context.Context) (sum, count float64) {
	for _, n := range t.files.NodesByRole("worker") {
		page, err := t.fetchPage(ctx, n.Addr["http"])
		if err != nil {
			continue
		}
		for name, v := range page {
			if strings.HasPrefix(name, "vllm:time_to_first_token_seconds_sum") {
				sum += v
			}
			if strings.HasPrefix(name, "vllm:time_to_first_token_seconds_count") {
				count += v
			}
		}
	}
	return sum, count
}
