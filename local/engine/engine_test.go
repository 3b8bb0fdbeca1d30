package engine

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var known = Reading{Running: 1, Waiting: 2, KVUsage: 0.3, KVTotal: 16000, PromptTokens: 5, OutputTokens: 6, PrefixQueries: 7, PrefixHits: 8, Preemptions: 9}

func TestParseVLLM(t *testing.T) {
	for _, c := range []struct {
		file string
		last Reading
		want Reading
	}{
		{"vllm.txt", Reading{}, Reading{Running: 7, Waiting: 3, KVUsage: 0.25, KVTotal: 28174 * 16, PromptTokens: 123456, OutputTokens: 65432, PrefixQueries: 51200, PrefixHits: 20480, Preemptions: 2}},
		{"two_engines.txt", Reading{}, Reading{Running: 10, Waiting: 2, KVUsage: 0.4, KVTotal: 32000}},
		{"rubbish.txt", known, known},
		{"old_name.txt", Reading{}, Reading{Running: 3, KVUsage: 0.5, Asleep: true}},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", c.file))
		if err != nil {
			t.Fatal(err)
		}
		if got := ParseVLLM(text, c.last); got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.file, got, c.want)
		}
	}
}

func TestReadingUnits(t *testing.T) {
	r := Reading{KVUsage: 0.25, KVTotal: 1000, PromptTokens: 10}
	if r.KVUsed() != 250 || (&Reading{KVUsage: 0.5}).KVUsed() != -1 {
		t.Error("KVUsed is wrong")
	}
	if !r.Restarted(&Reading{PromptTokens: 3}) || r.Restarted(&Reading{PromptTokens: 10}) {
		t.Error("Restarted is wrong")
	}
}

func TestModels(t *testing.T) {
	got, err := ParseModels([]byte(`{"object":"list","data":[{"id":"llama-3.1-8b","object":"model","max_model_len":131072,"parent":null},{"id":"sql","parent":"llama-3.1-8b"},{"id":""},{"id":"neg","max_model_len":-4}]}`))
	if err != nil || len(got) != 3 || got[0] != (Model{ID: "llama-3.1-8b", MaxContext: 131072}) || got[1].Parent != "llama-3.1-8b" || got[2].MaxContext != 0 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if _, err := ParseModels([]byte(`<html>`)); err == nil {
		t.Fatal("a page of HTML was taken for a list of models")
	}
}

func TestAskingAWorker(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("vllm:num_requests_running 2\n")) })
	mux.HandleFunc("/v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Repeat(" ", maxModels+1)))
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	v, err := NewVLLM(s.URL+"/", s.Client())
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := v.Health(ctx); err == nil || !strings.Contains(err.Error(), "status 503") {
		t.Errorf("health says %v", err)
	}
	if r, err := v.Metrics(ctx, known); err != nil || r.Running != 2 || r.KVTotal != known.KVTotal || r.At.IsZero() {
		t.Errorf("metrics say %+v, %v", r, err)
	}
	if _, err := v.Models(ctx); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an oversized page says %v", err)
	}
	for _, bad := range []string{"", "worker:80", "ftp://x", "http://"} {
		if _, err := NewVLLM(bad, s.Client()); err == nil {
			t.Errorf("%q was taken for a worker's URL", bad)
		}
	}
}

func FuzzParseVLLM(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := ParseVLLM(text, Reading{})
		for _, v := range []float64{float64(r.Running), float64(r.Waiting), r.KVUsage, float64(r.KVTotal), r.PromptTokens, r.OutputTokens, r.PrefixQueries, r.PrefixHits, r.Preemptions} {
			if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("%q gave %+v", text, r)
			}
		}
		if r.KVUsage > 1 {
			t.Fatalf("KV usage is %v", r.KVUsage)
		}
	})
}

func FuzzParseModels(f *testing.F) {
	f.Add([]byte(`{"data":[{"id":"m","max_model_len":1}]}`))
	f.Fuzz(func(t *testing.T, page []byte) {
		models, err := ParseModels(page)
		if err != nil {
			return
		}
		for _, m := range models {
			if m.ID == "" || m.MaxContext < 0 {
				t.Fatalf("%q gave %+v", page, m)
			}
		}
	})
}
