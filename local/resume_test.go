package local_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// startResumableZone is a zone of two stand-in workers that give one answer to one prompt.
func startResumableZone(t *testing.T, change func(*local.Config)) (a *local.Agent, workers [2]*gpu.Server, reg *prometheus.Registry) {
	t.Helper()
	a = startAgent(t, func(c *local.Config) {
		for i := range workers {
			workers[i] = startSimWorker(t, 0, 0)
			c.Workers = append(c.Workers, discover.Worker{Name: fmt.Sprintf("w%d", i+1), URL: workers[i].URL(), GPU: "H100"})
		}
		reg = c.Registry
		if change != nil {
			change(c)
		}
	})
	testkit.Eventually(t, "both workers ready", func() bool { return countReady(a) == 2 })
	return a, workers, reg
}

// streamAnswer is a stream as a client puts it together.
type streamAnswer struct {
	text, finish, failure          string
	idCount, roleCount, doneCount  int
	promptTokens, completionTokens int
	route, resumed                 string
}

func readStream(t *testing.T, url, path, body string) (a streamAnswer) {
	t.Helper()
	resp, err := testClient.Post(url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d, %v: %s", resp.StatusCode, err, text)
	}
	ids := map[string]bool{}
	for ev := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(ev, "data: ")
		if data == "[DONE]" {
			a.doneCount++
			continue
		}
		var o struct {
			ID      string
			Choices []struct {
				Delta        struct{ Role, Content string }
				Text         string
				FinishReason string `json:"finish_reason"`
			}
			Usage struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			}
			Error struct{ Code any }
		}
		if err := json.Unmarshal([]byte(data), &o); err != nil || !ok {
			t.Fatalf("a torn event: %q", ev)
		}
		for _, c := range o.Choices {
			a.text += c.Delta.Content + c.Text
			a.finish += c.FinishReason
			if c.Delta.Role != "" {
				a.roleCount++
			}
		}
		if o.Error.Code != nil {
			a.failure = fmt.Sprint(o.Error.Code)
			continue
		}
		a.promptTokens, a.completionTokens = o.Usage.Prompt, o.Usage.Completion
		ids[o.ID] = true
	}
	a.idCount, a.route, a.resumed = len(ids), resp.Header.Get(forward.HeaderRoute), resp.Trailer.Get(forward.HeaderResumed)
	return a
}

// A worker dies in the middle of its answer, and the client cannot tell but by the trailer.
func TestStreamResumesOnAnotherWorker(t *testing.T) {
	for _, c := range []struct {
		name, path, body string
		ill              gpu.Chaos
	}{
		{"chat", "/v1/chat/completions", `{"model":%q,"messages":[{"role":"user","content":"say a few things"}],"max_tokens":60,"stream":true,"stream_options":{"include_usage":true},"temperature":0}`, gpu.Chaos{Mode: gpu.ModeDieMidstream, AfterTokens: 9}},
		{"completions", "/v1/completions", `{"model":%q,"prompt":"say a few things","max_tokens":40,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`, gpu.Chaos{Mode: gpu.ModeDieMidstream, AfterTokens: 1}},
		{"natural end", "/v1/chat/completions", `{"model":%q,"messages":[{"role":"user","content":"say it all"}],"stream":true,"stream_options":{"include_usage":true}}`, gpu.Chaos{Mode: gpu.ModeDieMidstream, AfterTokens: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, workers, reg := startResumableZone(t, nil)
			body := fmt.Sprintf(c.body, baseModel)
			want := readStream(t, workers[0].URL(), c.path, body)
			var got streamAnswer
			testkit.Eventually(t, "a stream met its death", func() bool {
				got = readStream(t, "http://"+a.Addr().String(), c.path, body)
				for i, w := range workers { // who has the prompt cached is likely to be chosen again
					ill := gpu.Chaos{Mode: gpu.ModeOK}
					if strings.HasSuffix(got.route, fmt.Sprint("w", i+1)) {
						ill = c.ill
					}
					if err := w.SetChaos(ill); err != nil {
						t.Fatal(err)
					}
				}
				return got.resumed != ""
			})
			if got.resumed != "local" || got.failure != "" || got.text != want.text || got.finish != want.finish || got.idCount != 1 || got.doneCount != 1 || got.roleCount != want.roleCount {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
			if got.promptTokens != want.promptTokens || got.completionTokens != want.completionTokens {
				t.Errorf("usage is %d and %d, want %d and %d", got.promptTokens, got.completionTokens, want.promptTokens, want.completionTokens)
			}
			if n, err := testutil.GatherAndCount(reg, "spillway_local_resumes_total"); err != nil || n != 1 {
				t.Errorf("%d resumes counted, %v", n, err)
			}
		})
	}
}

// What a tenant forbids, what the engine cannot do and what is no plain text ends with an error event, as ever.
func TestUnresumableStreamsAreNotResumed(t *testing.T) {
	no := false
	plain := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"x"}],"max_tokens":30,"ignore_eos":true,"stream":true}`, baseModel)
	for _, c := range []struct {
		name, body, reason string
		change             func(*local.Config)
	}{
		{"stop string", strings.Replace(plain, "{", `{"stop":["."],`, 1), "stop", nil},
		{"forbidden", plain, "forbidden", func(c *local.Config) {
			c.Spec = &spec.Spec{Tenants: []spec.Tenant{{Name: spec.DefaultTenant, Resume: &no}}}
		}},
		{"too long", plain, "too_long", func(c *local.Config) { c.Spec = &spec.Spec{Routing: spec.Routing{ResumeText: new(8)}} }},
		{"another engine", plain, "engine", func(c *local.Config) {
			for i := range c.Workers {
				c.Workers[i].Engine = "openai"
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, workers, reg := startResumableZone(t, c.change)
			for _, w := range workers {
				if err := w.SetChaos(gpu.Chaos{Mode: gpu.ModeDieMidstream, AfterTokens: 4}); err != nil {
					t.Fatal(err)
				}
			}
			got := readStream(t, "http://"+a.Addr().String(), "/v1/chat/completions", c.body)
			if got.failure != "upstream_lost" || got.resumed != "" || len(got.text) != 16 {
				t.Errorf("got %+v", got)
			}
			want := fmt.Sprintf(`# HELP spillway_local_resumes_total Streams whose worker failed, by outcome (resumed, ended: only the end was missing, failed, not: not attempted) and the reason if not resumed.
# TYPE spillway_local_resumes_total counter
spillway_local_resumes_total{outcome="not",reason=%q} 1
`, c.reason)
			if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_local_resumes_total"); err != nil {
				t.Error(err)
			}
		})
	}
}

// An engine that runs out of memory ends its streams with error events. They go on elsewhere all the same.
func TestEngineErrorEventIsResumedElsewhere(t *testing.T) {
	a, workers, _ := startResumableZone(t, nil)
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"long"}],"max_tokens":400,"ignore_eos":true,"stream":true}`, baseModel)
	want := readStream(t, workers[0].URL(), "/v1/chat/completions", body)
	done := make(chan streamAnswer)
	go func() { done <- readStream(t, "http://"+a.Addr().String(), "/v1/chat/completions", body) }()
	var busy *gpu.Server
	testkit.Eventually(t, "it runs", func() bool {
		for _, w := range workers {
			if w.Gauges().Running > 0 {
				busy = w
			}
		}
		return busy != nil
	})
	if err := busy.SetChaos(gpu.Chaos{Mode: gpu.ModeOOM}); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.text != want.text || got.failure != "" || got.completionTokens != 0 {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// Nothing of a client that has left is gone on with.
func TestAbandonedStreamIsNotResumed(t *testing.T) {
	a, workers, _ := startResumableZone(t, nil)
	before := workers[0].TakenRequests() + workers[1].TakenRequests()
	ctx, leave := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(fmt.Sprintf(
		`{"model":%q,"messages":[{"role":"user","content":"x"}],"max_tokens":2000,"ignore_eos":true,"stream":true}`, baseModel)))
	resp, err := testClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = resp.Body.Read(make([]byte, 100))
	leave()
	_ = resp.Body.Close()
	testkit.Eventually(t, "both workers idle", func() bool { return workers[0].Gauges().Running+workers[1].Gauges().Running == 0 })
	if n := workers[0].TakenRequests() + workers[1].TakenRequests() - before; n != 1 {
		t.Errorf("%d requests were made of one", n)
	}
}
