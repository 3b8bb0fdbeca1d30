package local_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
)

func withHedging(reg *prometheus.Registry) func(*local.Config) {
	return func(c *local.Config) {
		c.Registry = reg
		h := spec.HedgePolicy{Enabled: true, After: spec.Duration(20 * time.Millisecond), Quantile: 0.95}
		c.Spec = &spec.Spec{Routing: spec.Routing{Hedge: h, RetryBudget: 0.1, Policy: "round_robin"}}
	}
}

// sumCounter returns the sum of a counter's series with the given label value.
func sumCounter(t *testing.T, reg *prometheus.Registry, name, label, value string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == label && l.GetValue() == value {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// checkWholeAnswer checks that a client got exactly one whole answer.
func checkWholeAnswer(t *testing.T, body string, resp *http.Response, text string) {
	t.Helper()
	ok := strings.Count(text, "hello there") == 1
	if body == streamedChat {
		ok = strings.Count(text, "content") == 4 && strings.Count(text, "[DONE]") == 1 && strings.HasSuffix(text, "data: [DONE]\n\n")
	}
	if resp.StatusCode != http.StatusOK || !ok {
		t.Fatalf("%d %q", resp.StatusCode, text)
	}
}

// shortChat has a short output limit, so that its whole answer is predicted early.
const shortChat = `{"model":"llama-3.1-8b","max_tokens":4,"messages":[{"role":"user","content":"hi"}]}`

const hedgesMetric = "spillway_local_hedges_total"

// TestHedgeAnswersWhenFirstWorkerHangs: a worker that accepts requests and never answers delays no client. Another
// worker answers, and the first attempt is cancelled without counting as a failure.
func TestHedgeAnswersWhenFirstWorkerHangs(t *testing.T) {
	for name, body := range map[string]string{"a stream": streamedChat, "not a stream": shortChat} {
		t.Run(name, func(t *testing.T) {
			bad, good := newFakeVLLM(t, "bad"), newFakeVLLM(t, "good")
			reg := telemetry.NewRegistry("local", "a", "test")
			a := startAgent(t, withHedging(reg), bad, good)
			bad.setMode("stall")
			n := 0.0
			for n < 20 && (n < 5 || sumCounter(t, reg, hedgesMetric, "outcome", "won") == 0) {
				resp, text := postChat(t, a, body)
				checkWholeAnswer(t, body, resp, text)
				if route := resp.Header.Get(forward.HeaderRoute); route != "us/us-a/good" {
					t.Errorf("answered by %s", route)
				}
				n++
			}
			won := sumCounter(t, reg, hedgesMetric, "outcome", "won")
			if won == 0 {
				t.Fatal("no request was sent to the hanging worker")
			}
			testkit.Eventually(t, "the loser is let go", func() bool { return bad.running.Load() == 0 && isIdle(a) })
			for _, w := range a.Status().Workers {
				if w.Reason != "" {
					t.Errorf("worker %s is %s", w.Name, w.Reason)
				}
			}
			if got := sumCounter(t, reg, "spillway_local_attempts_total", "outcome", "outrun"); got != won {
				t.Errorf("%v attempts were outrun by %v", got, won)
			}
			perAnswer := map[string]float64{streamedChat: 4, shortChat: 2}[body]
			testkit.Eventually(t, "each answer's tokens are counted once", func() bool {
				return sumCounter(t, reg, "spillway_local_tokens_total", "kind", "completion") == n*perAnswer
			})
			if items := a.Status().Models; len(items) == 0 {
				t.Error("no model is left")
			}
		})
	}
}

// TestHedgeFirstByteWinsAndOtherIsCancelled: the first byte of either attempt wins, and the other worker is free at
// once.
func TestHedgeFirstByteWinsAndOtherIsCancelled(t *testing.T) {
	slow, hanging := newFakeVLLM(t, "slow"), newFakeVLLM(t, "hanging")
	reg := telemetry.NewRegistry("local", "a", "test")
	a := startAgent(t, withHedging(reg), slow, hanging)
	slow.setMode("hold")
	hanging.setMode("stall")
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, text := postChat(t, a, streamedChat)
		checkWholeAnswer(t, streamedChat, resp, text)
	}()
	testkit.Eventually(t, "both workers have the request", func() bool { return slow.running.Load() == 1 && hanging.running.Load() == 1 })
	close(slow.release)
	<-done
	testkit.Eventually(t, "the other is cancelled", func() bool { return hanging.running.Load() == 0 && isIdle(a) })
	won, lost := sumCounter(t, reg, hedgesMetric, "outcome", "won"), sumCounter(t, reg, hedgesMetric, "outcome", "lost")
	if won+lost != 1 {
		t.Errorf("%v hedges won and %v lost", won, lost)
	}
}

// TestNoHedgeAfterFirstByte: after the first byte no hedge is sent, however long the rest takes.
func TestNoHedgeAfterFirstByte(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		w1, w2 := l.startFakeVLLM("w1"), l.startFakeVLLM("w2")
		reg := telemetry.NewRegistry("local", "a", "test")
		a := l.startAgentOver(withHedging(reg), w1, w2)
		w1.setMode("endless")
		w2.setMode("endless")
		resp, err := l.client.Post(baseURL(a)+"/v1/chat/completions", "application/json", strings.NewReader(streamedChat))
		if err != nil {
			l.Fatal(err)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
			l.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		if n := w1.posts.Load() + w2.posts.Load(); n != 1 {
			l.Errorf("the workers were sent %d requests", n)
		}
		_ = resp.Body.Close()
		l.waitWithin(time.Second, "an empty ledger", func() bool { return isIdle(a) })
	})
}

func TestHedgeUsesRetryBudgetAndIsOffByDefault(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*prometheus.Registry) func(*local.Config)
		want   float64
	}{
		"no budget": {withHedging, 1},
		"off":       {func(reg *prometheus.Registry) func(*local.Config) { return func(c *local.Config) { c.Registry = reg } }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			runInMemory(t, func(l *memCluster) {
				w1, w2 := l.startFakeVLLM("w1"), l.startFakeVLLM("w2")
				reg := telemetry.NewRegistry("local", "a", "test")
				a := l.startAgentOver(tc.change(reg), w1, w2)
				a.EmptyRetryBudget()
				w1.setMode("hold")
				w2.setMode("hold")
				done := make(chan struct{})
				go func() {
					defer close(done)
					resp, text := l.postChat(a, streamedChat)
					checkWholeAnswer(l.T, streamedChat, resp, text)
				}()
				l.waitWithin(time.Second, "a worker has the request", func() bool { return w1.running.Load()+w2.running.Load() == 1 })
				time.Sleep(200 * time.Millisecond)
				close(w1.release)
				close(w2.release)
				<-done
				if n := w1.posts.Load() + w2.posts.Load(); n != 1 {
					l.Errorf("the workers were sent %d requests", n)
				}
				if got := sumCounter(l.T, reg, hedgesMetric, "outcome", "no_budget"); got != tc.want {
					l.Errorf("%v hedges had no budget, want %v", got, tc.want)
				}
			})
		})
	}
}

// TestHedgedContinuationThatFailsEndsStream: the engine of a stream fails, and both hedged attempts to continue it are
// refused. The client receives an error event after the part that it has, and not the answer to another request.
func TestHedgedContinuationThatFailsEndsStream(t *testing.T) {
	var calls atomic.Int64
	both := make(chan struct{})
	workers := []*fakeVLLM{newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2"), newFakeVLLM(t, "w3")}
	for _, w := range workers {
		next := w.Config.Handler
		w.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != openai.PathChat {
				next.ServeHTTP(w, r)
				return
			}
			switch calls.Add(1) {
			case 1:
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"w0\"}}]}\n\ndata: {\"error\":{\"message\":\"failed\",\"type\":\"InternalServerError\",\"code\":500}}\n\n")
				return
			case 3:
				close(both)
			}
			<-both
			http.Error(w, "busy", http.StatusServiceUnavailable)
		})
	}
	reg := telemetry.NewRegistry("local", "a", "test")
	a := startAgent(t, withHedging(reg), workers...)
	resp, text := postChat(t, a, streamedChat)
	if resp.StatusCode != http.StatusOK || strings.Count(text, "data: ") != 2 || !strings.HasPrefix(text, "data: {\"choices\"") || !strings.Contains(text, "data: {\"error\"") || !strings.HasSuffix(text, "}\n\n") {
		t.Errorf("%d %q after %d attempts", resp.StatusCode, text, calls.Load())
	}
	if n := sumCounter(t, reg, hedgesMetric, "outcome", "failed"); n != 1 || calls.Load() != 3 {
		t.Errorf("%v hedges failed in %d attempts, want 1 in 3", n, calls.Load())
	}
}
