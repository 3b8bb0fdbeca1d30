package local_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local"
)

func hedging(reg *prometheus.Registry) func(*local.Config) {
	return func(c *local.Config) {
		c.Registry = reg
		h := spec.Hedging{Enabled: true, After: spec.Duration(20 * time.Millisecond), Quantile: 0.95}
		c.Spec = &spec.Spec{Routing: spec.Routing{Hedge: h, RetryBudget: 0.1, Policy: "round_robin"}}
	}
}

// counted is the sum of a counter's series that have a label's value.
func counted(t *testing.T, reg *prometheus.Registry, name, label, value string) (sum float64) {
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

// answered checks that a client got one whole answer.
func answered(t *testing.T, body string, resp *http.Response, text string) {
	t.Helper()
	ok := strings.Count(text, "hello there") == 1
	if body == streamed {
		ok = strings.Count(text, "content") == 4 && strings.Count(text, "[DONE]") == 1 && strings.HasSuffix(text, "data: [DONE]\n\n")
	}
	if resp.StatusCode != http.StatusOK || !ok {
		t.Fatalf("%d %q", resp.StatusCode, text)
	}
}

// short says how short its answer is, so that it is predicted to be whole soon.
const short = `{"model":"llama-3.1-8b","max_tokens":4,"messages":[{"role":"user","content":"hi"}]}`

const hedges = "spillway_local_hedges_total"

// A worker that takes requests and says nothing delays nobody: another answers, and it is let go unharmed.
func TestHedgeAnswersFromAnotherWorkerWhenOneStands(t *testing.T) {
	for name, body := range map[string]string{"a stream": streamed, "not a stream": short} {
		t.Run(name, func(t *testing.T) {
			bad, good := newVLLM(t, "bad"), newVLLM(t, "good")
			reg := telemetry.NewRegistry("local", "a", "test")
			a := start(t, hedging(reg), bad, good)
			bad.set("stall")
			n := 0.0
			for n < 20 && (n < 5 || counted(t, reg, hedges, "outcome", "won") == 0) {
				resp, text := post(t, a, body)
				answered(t, body, resp, text)
				if route := resp.Header.Get(relay.HeaderRoute); route != "us/us-a/good" {
					t.Errorf("answered by %s", route)
				}
				n++
			}
			won := counted(t, reg, hedges, "outcome", "won")
			if won == 0 {
				t.Fatal("no request met the worker that stands")
			}
			eventually(t, "the loser is let go", func() bool { return bad.running.Load() == 0 && idle(a) })
			for _, w := range a.Status().Workers {
				if w.Reason != "" {
					t.Errorf("worker %s is %s", w.Name, w.Reason)
				}
			}
			if got := counted(t, reg, "spillway_local_attempts_total", "outcome", "outrun"); got != won {
				t.Errorf("%v attempts were outrun by %v", got, won)
			}
			perAnswer := map[string]float64{streamed: 4, short: 2}[body]
			eventually(t, "each answer's tokens are counted once", func() bool {
				return counted(t, reg, "spillway_local_tokens_total", "kind", "completion") == n*perAnswer
			})
			if items := a.Status().Models; len(items) == 0 {
				t.Error("no model is left")
			}
		})
	}
}

// The first byte wins, whichever attempt it is from, and the other worker is free at once.
func TestHedgeTheFirstByteWinsAndTheOtherIsCancelled(t *testing.T) {
	slow, stands := newVLLM(t, "slow"), newVLLM(t, "stands")
	reg := telemetry.NewRegistry("local", "a", "test")
	a := start(t, hedging(reg), slow, stands)
	slow.set("hold")
	stands.set("stall")
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, text := post(t, a, streamed)
		answered(t, streamed, resp, text)
	}()
	eventually(t, "both workers have the request", func() bool { return slow.running.Load() == 1 && stands.running.Load() == 1 })
	close(slow.release)
	<-done
	eventually(t, "the other is cancelled", func() bool { return stands.running.Load() == 0 && idle(a) })
	won, lost := counted(t, reg, hedges, "outcome", "won"), counted(t, reg, hedges, "outcome", "lost")
	if won+lost != 1 {
		t.Errorf("%v hedges won and %v lost", won, lost)
	}
}

// After the first byte nothing is hedged, however long the rest takes.
func TestHedgeNeverAfterTheFirstByte(t *testing.T) {
	w1, w2 := newVLLM(t, "w1"), newVLLM(t, "w2")
	reg := telemetry.NewRegistry("local", "a", "test")
	a := start(t, hedging(reg), w1, w2)
	w1.set("endless")
	w2.set("endless")
	resp, err := client.Post("http://"+a.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(streamed))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	if n := w1.posts.Load() + w2.posts.Load(); n != 1 {
		t.Errorf("the workers were sent %d requests", n)
	}
	_ = resp.Body.Close()
	eventually(t, "an empty ledger", func() bool { return idle(a) })
}

func TestHedgeIsPaidOutOfTheRetryBudgetAndOffByDefault(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*prometheus.Registry) func(*local.Config)
		want   float64
	}{
		"no budget": {hedging, 1},
		"off":       {func(reg *prometheus.Registry) func(*local.Config) { return func(c *local.Config) { c.Registry = reg } }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w1, w2 := newVLLM(t, "w1"), newVLLM(t, "w2")
			reg := telemetry.NewRegistry("local", "a", "test")
			a := start(t, tc.change(reg), w1, w2)
			a.SpendAll()
			w1.set("hold")
			w2.set("hold")
			done := make(chan struct{})
			go func() {
				defer close(done)
				resp, text := post(t, a, streamed)
				answered(t, streamed, resp, text)
			}()
			eventually(t, "a worker has the request", func() bool { return w1.running.Load()+w2.running.Load() == 1 })
			time.Sleep(200 * time.Millisecond)
			close(w1.release)
			close(w2.release)
			<-done
			if n := w1.posts.Load() + w2.posts.Load(); n != 1 {
				t.Errorf("the workers were sent %d requests", n)
			}
			if got := counted(t, reg, hedges, "outcome", "no_budget"); got != tc.want {
				t.Errorf("%v hedges had no budget, want %v", got, tc.want)
			}
		})
	}
}
