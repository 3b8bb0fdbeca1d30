package local_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// TestURLQueryReachesWorkerUnchanged: some engines require a query (?api-version=...), which only they can interpret.
func TestURLQueryReachesWorkerUnchanged(t *testing.T) {
	asked := make(chan string, 1)
	a := startAgentWith(t, nil, newChatWorker(t, "w1", func(w http.ResponseWriter, r *http.Request) {
		asked <- r.RequestURI
		_, _ = io.WriteString(w, `{"choices":[]}`)
	}))
	for _, query := range []string{"", "?api-version=2024-10-21", "?a=1&a=2&b", "?x=%2Fy%20z+%C3%A9&%zz=;", "?q=http://other/v1"} {
		resp, err := testClient.Post("http://"+a.Addr().String()+"/v1/chat/completions"+query, "application/json", strings.NewReader(`{"model":"m","messages":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := <-asked; resp.StatusCode != http.StatusOK || got != "/v1/chat/completions"+query {
			t.Errorf("query %q reached the worker as %q, and the answer was %d", query, got, resp.StatusCode)
		}
	}
}

// TestWorkerWeightBoundsAreTheSameEverywhere: the config and the zone accept the same weights.
func TestWorkerWeightBoundsAreTheSameEverywhere(t *testing.T) {
	for _, c := range []struct {
		weight string
		taken  bool
	}{{"0.001", true}, {"1000", true}, {"1000.5", false}, {"0", false}, {"-1", false}, {".inf", false}, {".nan", false}} {
		list := fmt.Sprintf("workers:\n  - {name: w1, url: \"http://10.0.1.21:8000\", weight: %s}\n", c.weight)
		_, err := config.Decode("local.yaml", []byte("role: local\nname: l1\nregion: fra\nzone: a\nhttp: {listen: \"127.0.0.1:0\", plain: true}\n"+list))
		_, err2 := discover.DecodeWorkers("workers.yaml", []byte(list))
		if (err == nil) != c.taken || (err2 == nil) != c.taken {
			t.Errorf("weight %s: config error %v, workers file error %v", c.weight, err, err2)
		}
	}
}

// specWithAlias is a spec in which "the-usual-one" is model m, of which an answer may have so many tokens.
func specWithAlias(limit int) *spec.Spec {
	return &spec.Spec{
		Models:  []spec.Model{{Name: "m", OutputLimit: limit}},
		Aliases: []spec.Alias{{Name: "the-usual-one", Targets: []spec.AliasTarget{{Model: "m", Weight: 1}}}},
	}
}

// TestRewrittenBodyReachesWorkerIntact: the model, the request for usage and the limit are in their places for any order
// of the body, and nothing else has changed.
func TestRewrittenBodyReachesWorkerIntact(t *testing.T) {
	got := make(chan string, 1)
	a := startAgentWith(t, func(c *local.Config) { c.Spec = specWithAlias(50) }, newChatWorker(t, "w1", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- string(b)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	long := strings.Repeat("word ", 44_000)
	for _, c := range [][2]string{
		{`{"model":"m"}`, `{"model":"m","max_tokens":50}`},
		{`{"model":"the-usual-one","max_tokens":7}`, `{"model":"m","max_tokens":7}`},
		{`{"model":"the-usual-one"}`, `{"model":"m","max_tokens":50}`},
		{`{"model":"the-usual-one","stream":true,"stream_options":{"include_usage":false}}`, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":50}`},
		{`{"stream_options":{"x":1},"stream":true,"model":"the-usual-one"}`, `{"stream_options":{"include_usage":true,"x":1},"stream":true,"model":"m","max_tokens":50}`},
		{`{"messages":[{"role":"user","content":"LONG"}],"stream":true,"model":"the-usual-one"}`, `{"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"LONG"}],"stream":true,"model":"m","max_tokens":50}`},
	} {
		in, want := strings.Replace(c[0], "LONG", long, 1), strings.Replace(c[1], "LONG", long, 1)
		resp, text := postChat(t, a, in)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%.100s: %d %s", in, resp.StatusCode, text)
		}
		if b := <-got; b != want {
			t.Errorf("%.100s\narrived as %.100s ...%s\nwant       %.100s", in, b, b[max(0, len(b)-40):], want)
		}
	}
}

// TestRewrittenPromptIsInMemoryOnce: 220 KB for an alias, with the question for usage besides, are in memory once.
func TestRewrittenPromptIsInMemoryOnce(t *testing.T) {
	const size, many = 220_000, 16
	begun, proceed := make(chan struct{}, many), make(chan struct{})
	let := sync.OnceFunc(func() { close(proceed) })
	a := startAgentWith(t, func(c *local.Config) { c.Spec, c.Workers[0].GPU = specWithAlias(0), "H100" }, newChatWorker(t, "w1", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil || n < size {
			t.Errorf("%d bytes came: %v", n, err)
		}
		begun <- struct{}{}
		<-proceed
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(let)
	body := `{"model":"the-usual-one","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("word ", size/5) + `"}]}`
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools have kept goes with the second
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	answers := make(chan error, many)
	for range many {
		go func() {
			resp, err := testClient.Post("http://"+a.Addr().String()+openai.PathChat, "application/json", strings.NewReader(body))
			if err == nil {
				defer func() { _ = resp.Body.Close() }()
				if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
					err = fmt.Errorf("%d %s", resp.StatusCode, b)
				}
			}
			answers <- err
		}()
	}
	for range many {
		select {
		case <-begun:
		case err := <-answers:
			t.Fatalf("an answer before the worker gave one: %v", err)
		}
	}
	each := float64(heap()-before) / many
	let()
	for range many {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%.0f KB are held for each prompt of %d KB", each/1000, size/1000)
	if each > 1.8*size {
		t.Errorf("%.0f KB are held for each prompt of %d KB", each/1000, size/1000)
	}
}
