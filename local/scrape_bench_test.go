package local_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// BenchmarkScrape100Workers has an idle instance look at 100 workers once a second, each with the whole page of an engine,
// and reports the part of a core that this takes. The workers are in the same process; what they take by themselves is
// measured by asking them as often for the same pages, and left out.
func BenchmarkScrape100Workers(b *testing.B) {
	const workers = 100
	page := enginePage(b)
	var cfg local.Config
	var urls []string
	for i := range workers {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/v1/models":
				_, _ = io.WriteString(w, `{"data":[{"id":"llama-3.1-8b","owned_by":"vllm"}]}`)
			case "/metrics":
				_, _ = w.Write(page)
			}
		}))
		defer s.Close()
		urls = append(urls, s.URL)
		cfg.Workers = append(cfg.Workers, discover.Worker{Name: fmt.Sprint("w", i), URL: s.URL})
	}
	cfg.Name, cfg.Region, cfg.Zone, cfg.Listen, cfg.Plain = "a", "us", "us-a", "127.0.0.1:0", true
	a, err := local.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	if err := a.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); countReady(a) < workers; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("%d of %d workers are ready", countReady(a), workers)
		}
	}
	const span = 3 * time.Second
	var all, used time.Duration
	for b.Loop() {
		before := processCPUTime(b)
		time.Sleep(span)
		all += processCPUTime(b) - before
		used += span
	}
	b.StopTimer()
	if err := a.Stop(b.Context()); err != nil {
		b.Fatal(err)
	}
	pages := measureServerCPU(b, urls)
	b.ReportMetric(100*all.Seconds()/used.Seconds(), "%core-with-servers")
	b.ReportMetric(100*(all.Seconds()/used.Seconds()-pages.Seconds()), "%core")
	b.ReportMetric(float64(len(page)), "page-bytes")
}

// measureServerCPU is the CPU time that the servers' half of one round of questions takes: half of what a round takes both sides.
func measureServerCPU(b *testing.B, urls []string) time.Duration {
	hc := &http.Client{Transport: &http.Transport{}}
	defer hc.CloseIdleConnections()
	ask := func() {
		for _, u := range urls {
			for _, path := range []string{"/health", "/metrics"} {
				resp, err := hc.Get(u + path)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
	}
	ask()
	before := processCPUTime(b)
	for range 3 {
		ask()
	}
	return (processCPUTime(b) - before) / 6
}

// enginePage is what a stand-in that has served something shows.
func enginePage(b *testing.B) []byte {
	s, err := gpu.New(gpu.Config{Listen: "127.0.0.1:0", GPU: "H100", Model: "Llama-3.1-8B", ServedModel: "llama-3.1-8b"})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Stop(b.Context()) }()
	resp, err := testClient.Get(s.URL() + "/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	page, err := io.ReadAll(resp.Body)
	if err != nil || len(page) < 1000 {
		b.Fatalf("a page of %d bytes, %v", len(page), err)
	}
	return page
}
