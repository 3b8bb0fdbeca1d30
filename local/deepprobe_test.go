package local_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/health"
)

// wedge is a worker whose health page and metrics answer, and whose engine can be wedged.
func wedge(t *testing.T, name string) (w *vllm, wedged *atomic.Bool, asked *atomic.Int64) {
	w, wedged, asked = newVLLM(t, name), &atomic.Bool{}, &atomic.Int64{}
	inner := w.Config.Handler
	w.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/completions" {
			asked.Add(1)
			if wedged.Load() {
				http.Error(rw, `{"error":{"message":"engine loop is dead"}}`, http.StatusInternalServerError)
				return
			}
		}
		inner.ServeHTTP(rw, r)
	})
	return w, wedged, asked
}

// The spec takes one second at least; what it is here is set past its check.
func probing(every time.Duration) func(*local.Config) {
	return func(c *local.Config) {
		c.Spec = &spec.Spec{Routing: spec.Routing{Health: spec.Healthing{DeepProbe: spec.Duration(every)}}}
		c.Health.Backoff, c.Health.MaxBackoff = time.Millisecond, time.Millisecond
	}
}

// An idle worker that answers every health probe and cannot make a token is found out.
func TestDeepProbeFindsAWorkerThatLiesAboutItsHealth(t *testing.T) {
	w, wedged, _ := wedge(t, "w1")
	a := start(t, func(c *local.Config) {
		probing(50 * time.Millisecond)(c)
		c.Health.Backoff, c.Health.MaxBackoff = time.Hour, time.Hour // once it is warmed up in vain, that is the reason
	}, w)
	wedged.Store(true)
	reason := "ejected: " + health.DeepProbe.String()
	eventually(t, "the liar is out", func() bool { return strings.HasPrefix(a.Status().Workers[0].Reason, reason+": POST /v1/completions: ") })
}

// It stays out while it cannot make a token, however often it is tried, and comes back when it can.
func TestDeepProbeLetsAWorkerBackThatMakesTokensAgain(t *testing.T) {
	w, wedged, asked := wedge(t, "w1")
	a := start(t, probing(50*time.Millisecond), w)
	wedged.Store(true)
	eventually(t, "the liar is out", func() bool { return ready(a) == 0 })
	before := asked.Load()
	eventually(t, "it is tried again", func() bool {
		if ready(a) != 0 {
			t.Fatal("it is back and makes no tokens")
		}
		return asked.Load() > before+2
	})
	wedged.Store(false)
	eventually(t, "it is back", func() bool { return a.Status().Workers[0].Reason == "" })
}

func TestDeepProbeLeavesAWorkerAtWorkAlone(t *testing.T) {
	w, _, asked := wedge(t, "w1")
	a := start(t, probing(20*time.Millisecond), w)
	eventually(t, "an idle worker is asked", func() bool { return asked.Load() > 2 })
	w.set("hold")
	done := make(chan struct{})
	go func() { defer close(done); _, _ = post(t, a, streamed) }()
	eventually(t, "the worker holds a request", func() bool { return w.running.Load() == 1 })
	eventually(t, "nothing is asked for ten intervals", func() bool { // once a probe that was sent just before is over
		before := asked.Load()
		time.Sleep(200 * time.Millisecond)
		return asked.Load() == before
	})
	time.Sleep(200 * time.Millisecond)
	before := asked.Load()
	time.Sleep(200 * time.Millisecond)
	if n := asked.Load() - before; n != 0 {
		t.Errorf("a worker at work was asked %d times", n)
	}
	close(w.release)
	<-done
}

func TestDeepProbeIsOffByDefault(t *testing.T) {
	w, _, asked := wedge(t, "w1")
	start(t, nil, w)
	before := asked.Load() // the warm-up
	time.Sleep(100 * time.Millisecond)
	if n := asked.Load() - before; n != 0 {
		t.Errorf("asked %d times", n)
	}
}
