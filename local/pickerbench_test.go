package local_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// BenchmarkPickerChoice measures one request of a proxy, from its head to its endpoint and the body's last part, over a real
// connection on loopback, with an idle worker.
func BenchmarkPickerChoice(b *testing.B) {
	for name, size := range map[string]int{"1KB": 1 << 10, "220KB": 220 << 10} {
		b.Run(name, func(b *testing.B) {
			a := startBenchmarkAgent(b)
			p := dialPicker(b, a)
			body := `{"model":"llama-3.1-8b","max_tokens":4,"messages":[{"role":"user","content":"` + strings.Repeat("word ", size/5) + `"}]}`
			var took []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				s := p.open(bufferedMode)
				began := time.Now()
				if v := s.ask(body, nil); len(v.endpoints) == 0 {
					b.Fatalf("%+v", v)
				}
				took = append(took, time.Since(began))
				s.sendAnswerHead("200", "application/json", true, nil)
				_ = s.CloseSend()
				_, _ = s.Recv()
				s.cancel()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// startBenchmarkAgent runs an agent with an endpoint picker over one idle worker with a large KV cache.
func startBenchmarkAgent(b *testing.B) *local.Agent {
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			_, _ = io.WriteString(w, `{"data":[{"id":"llama-3.1-8b","owned_by":"vllm","max_model_len":131072}]}`)
		case "/metrics":
			_, _ = io.WriteString(w, "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100000\"} 1\n")
		}
	}))
	b.Cleanup(worker.Close)
	cfg := local.Config{Name: "a", Region: "us", Zone: "us-a", Listen: "127.0.0.1:0", Plain: true, Workers: []discover.Worker{{Name: "w", URL: worker.URL, GPU: "H100"}}}
	withPicker(&cfg)
	a, err := local.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	if err := a.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = a.Stop(context.Background()) })
	testkit.Eventually(b, "the worker to be ready", func() bool { return countReady(a) == 1 })
	return a
}
