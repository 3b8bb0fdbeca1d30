package local_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/health"
)

// newWedgeableWorker returns a worker whose health page and metrics always answer, but whose engine can be made to
// hang.
func newWedgeableWorker(t *testing.T, name string) (w *fakeVLLM, wedged *atomic.Bool, asked *atomic.Int64) {
	w, wedged, asked = newFakeVLLM(t, name), &atomic.Bool{}, &atomic.Int64{}
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

// withDeepProbe sets the interval of deep probes. The spec's minimum of one second is bypassed.
func withDeepProbe(every time.Duration) func(*local.Config) {
	return func(c *local.Config) {
		c.Spec = &spec.Spec{Routing: spec.Routing{Health: spec.HealthPolicy{DeepProbe: spec.Duration(every)}}}
		c.Health.Backoff, c.Health.MaxBackoff = time.Millisecond, time.Millisecond
	}
}

// TestDeepProbeEjectsWorkerThatMakesNoTokens: an idle worker that answers every health probe but produces no token is
// detected.
func TestDeepProbeEjectsWorkerThatMakesNoTokens(t *testing.T) {
	w, wedged, _ := newWedgeableWorker(t, "w1")
	a := startAgent(t, func(c *local.Config) {
		withDeepProbe(50 * time.Millisecond)(c)
		c.Health.Backoff, c.Health.MaxBackoff = time.Hour, time.Hour // after a failed warm-up this becomes the reason
	}, w)
	wedged.Store(true)
	reason := "ejected: " + health.DeepProbeFailed.String()
	testkit.Eventually(t, "the liar is out", func() bool { return strings.HasPrefix(a.Status().Workers[0].Reason, reason+": POST /v1/completions: ") })
}

// TestDeepProbeReadmitsWorkerThatMakesTokens: the worker stays ejected through all trials while it produces no token,
// and is readmitted when it does.
func TestDeepProbeReadmitsWorkerThatMakesTokens(t *testing.T) {
	w, wedged, asked := newWedgeableWorker(t, "w1")
	a := startAgent(t, withDeepProbe(50*time.Millisecond), w)
	wedged.Store(true)
	testkit.Eventually(t, "the liar is out", func() bool { return countReady(a) == 0 })
	before := asked.Load()
	testkit.Eventually(t, "it is tried again", func() bool {
		if countReady(a) != 0 {
			t.Fatal("it is back and makes no tokens")
		}
		return asked.Load() > before+2
	})
	wedged.Store(false)
	testkit.Eventually(t, "it is back", func() bool { return a.Status().Workers[0].Reason == "" })
}

func TestDeepProbeSkipsBusyWorker(t *testing.T) {
	w, _, asked := newWedgeableWorker(t, "w1")
	a := startAgent(t, withDeepProbe(20*time.Millisecond), w)
	testkit.Eventually(t, "an idle worker is asked", func() bool { return asked.Load() > 2 })
	w.setMode("hold")
	done := make(chan struct{})
	go func() { defer close(done); _, _ = postChat(t, a, streamedChat) }()
	testkit.Eventually(t, "the worker holds a request", func() bool { return w.running.Load() == 1 })
	testkit.Eventually(t, "no probe for ten intervals", func() bool { // except one that was sent just before
		before := asked.Load()
		time.Sleep(200 * time.Millisecond)
		return asked.Load() == before
	})
	time.Sleep(200 * time.Millisecond)
	before := asked.Load()
	time.Sleep(200 * time.Millisecond)
	if n := asked.Load() - before; n != 0 {
		t.Errorf("a busy worker was probed %d times", n)
	}
	close(w.release)
	<-done
}

func TestDeepProbeIsOffByDefault(t *testing.T) {
	w, _, asked := newWedgeableWorker(t, "w1")
	startAgent(t, nil, w)
	before := asked.Load() // includes the warm-up
	time.Sleep(100 * time.Millisecond)
	if n := asked.Load() - before; n != 0 {
		t.Errorf("probed %d times", n)
	}
}
