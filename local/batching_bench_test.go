package local_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// BenchmarkEmbeddings64 runs 64 concurrent callers, each of which requests one embedding after the other, against one
// simulated worker, with and without merging.
func BenchmarkEmbeddings64(b *testing.B) {
	for _, merged := range []bool{false, true} {
		b.Run(fmt.Sprintf("merged=%v", merged), func(b *testing.B) { runEmbeddingBenchmark(b, merged) })
	}
}

func runEmbeddingBenchmark(b *testing.B, merged bool) {
	worker, err := gpu.New(gpu.Config{Listen: "127.0.0.1:0", GPU: "H100", Model: "Llama-3.1-8B", ServedModel: "bge"})
	if err != nil {
		b.Fatal(err)
	}
	if err := worker.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	reg := telemetry.NewRegistry("local", "a", "bench")
	s := &spec.Spec{}
	s.Routing.Batch.Enabled = &merged
	a, err := local.New(local.Config{
		Name: "a", Region: "us", Zone: "us-a", Listen: "127.0.0.1:0", Plain: true, Spec: s, Registry: reg,
		Workers: []discover.Worker{{Name: "w1", URL: worker.URL(), GPU: "H100", Models: []string{"bge"}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := a.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	defer func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = a.Stop(ctx)
		_ = worker.Stop(ctx)
	}()
	for a.Status().Workers[0].State != "ready" {
		time.Sleep(time.Millisecond)
	}
	c := &http.Client{Transport: transport}
	var next, failed atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range 64 {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				body := fmt.Sprintf(`{"model":"bge","input":"%d %s","dimensions":256}`, n, strings.Repeat("word ", 12))
				resp, err := c.Post("http://"+a.Addr().String()+"/v1/embeddings", "application/json", strings.NewReader(body))
				if err != nil {
					failed.Add(1)
					continue
				}
				if _, err = io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
					failed.Add(1)
				}
				_ = resp.Body.Close()
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	if calls := countBatchCalls(b, reg); merged && calls > 0 {
		b.ReportMetric(float64(b.N)/calls, "requests/call")
	}
	if failed.Load() > 0 {
		b.Fatalf("%d of %d failed", failed.Load(), b.N)
	}
}

// countBatchCalls counts the calls made for merged requests.
func countBatchCalls(b *testing.B, reg *prometheus.Registry) (n float64) {
	families, err := reg.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "spillway_local_batch_calls_total" {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}
