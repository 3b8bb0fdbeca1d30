package local_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/health"
)

// A frozen process keeps its sockets: probes and requests are taken and never answered, and nothing is reset. The first
// probe that fails ends the patience.
func TestRequestsOfFrozenWorkerAreRetriedElsewhere(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		frozen, good := l.startFakeVLLM("w1"), l.startFakeVLLM("w2")
		a := l.startAgentOver(func(c *local.Config) { c.Policy = "round_robin" }, frozen, good)
		frozen.setMode("freeze")
		began := time.Now()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if resp, text := l.postChat(a, streamedChat); resp.StatusCode != 200 || !strings.Contains(text, "[DONE]") {
					l.Errorf("%d %q", resp.StatusCode, text)
				}
			})
		}
		wg.Wait()
		if d := time.Since(began); d > 4*time.Second {
			l.Errorf("it took %v: the first probe that fails ends the patience", d)
		}
		if good.served.Load() != 4 {
			l.Errorf("the well worker served %d of 4", good.served.Load())
		}
		l.waitWithin(5*time.Second, "the frozen worker out", func() bool { return countReady(a) == 1 })
	})
}

func TestStreamOfFrozenWorkerEndsWithErrorEvent(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		w := l.startFakeVLLM("w1")
		a := l.startAgentOver(func(c *local.Config) { c.Health.Stall = 100 * time.Millisecond }, w)
		w.setMode("endless")
		began := time.Now()
		resp, text := l.postChat(a, streamedChat)
		if resp.StatusCode != 200 || strings.Count(text, "content") != 2 || !strings.Contains(text, `"code":"upstream_lost"`) {
			l.Fatalf("%d %q", resp.StatusCode, text)
		}
		if d := time.Since(began); d > 2*time.Second {
			l.Errorf("it took %v", d)
		}
		l.waitWithin(time.Second, "the ledger empty", func() bool { return isIdle(a) })
	})
}

// An answer that is no stream is silent until it is whole; what the engine says it has generated counts as progress.
func TestLongNonStreamingAnswerIsNoStall(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		w := l.startFakeVLLM("w1")
		a := l.startAgentOver(func(c *local.Config) { c.Health.Stall = 700 * time.Millisecond }, w)
		w.setMode("hold")
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, text := l.postChat(a, strings.Replace(nonStreamingChat, `{`, `{"max_tokens":1,`, 1)); resp.StatusCode != 200 {
				l.Errorf("%d %q", resp.StatusCode, text)
			}
		}()
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			w.generatedTokens.Add(1)
		}
		if s := a.Status().Workers[0]; s.State != admin.StateReady {
			l.Errorf("the worker is %s: %s", s.State, s.Reason)
		}
		close(w.release)
		<-done
	})
}

func TestRemovedWorkerThatFreezesIsGivenUp(t *testing.T) {
	w1, w2 := newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2")
	file := t.TempDir() + "/workers.yaml"
	writeWorkersFile(t, file, w1)
	a := startAgent(t, func(c *local.Config) {
		c.Workers, c.WorkersFile, c.Health.Stall = nil, file, 300*time.Millisecond
	}, w1)
	w1.setMode("freeze")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, text := postChat(t, a, streamedChat); resp.StatusCode != 200 || resp.Header.Get(forward.HeaderRoute) != "us/us-a/w2" {
			t.Errorf("%d %q", resp.StatusCode, text)
		}
	}()
	testkit.Eventually(t, "the request under way", func() bool { return w1.running.Load() == 1 })
	writeWorkersFile(t, file, w2)
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	<-done
}

func TestUnusedRetryIsHandedBackToTheGateway(t *testing.T) {
	p := newGatewayHarness(t)
	w := newFakeVLLM(t, "w1")
	a := startAgent(t, func(c *local.Config) { p.joinGateway(c); c.Health.Stall = 100 * time.Millisecond }, w)
	w.setMode("freeze")
	for left, want := range map[int]string{1: "1", 0: ""} {
		resp, text, err := p.postFromGateway(p.gateway, a, forward.Hop{Tenant: "acme", RetriesLeft: left}, streamedChat)
		if err != nil || resp.StatusCode != http.StatusBadGateway {
			t.Fatalf("%v %v %q", err, resp, text)
		}
		if got := resp.Header.Get(forward.HeaderNotStarted); got != want {
			t.Errorf("with %d retries left the mark is %q, want %q", left, got, want)
		}
		w.setMode("ok")
		testkit.Eventually(t, "the worker back", func() bool {
			resp, _, err := p.postFromGateway(p.gateway, a, forward.Hop{Tenant: "acme"}, streamedChat)
			return err == nil && resp.StatusCode == http.StatusOK
		})
		w.setMode("freeze")
	}
}

// newWedgeableWorker returns a worker whose health page and metrics always answer, but whose engine can be made to
// hang.
func newWedgeableWorker(t *testing.T, name string) (w *fakeVLLM, wedged *atomic.Bool, asked *atomic.Int64) {
	w = newFakeVLLM(t, name)
	wedged, asked = makeWedgeable(w)
	return w, wedged, asked
}

// makeWedgeable counts the completions that a worker is asked for, and makes them fail while wedged is set.
func makeWedgeable(w *fakeVLLM) (wedged *atomic.Bool, asked *atomic.Int64) {
	wedged, asked = &atomic.Bool{}, &atomic.Int64{}
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
	return wedged, asked
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
	runInMemory(t, func(l *memCluster) {
		w := l.startFakeVLLM("w1")
		_, asked := makeWedgeable(w)
		a := l.startAgentOver(withDeepProbe(20*time.Millisecond), w)
		l.waitWithin(10*time.Second, "an idle worker is asked", func() bool { return asked.Load() > 2 })
		w.setMode("hold")
		done := make(chan struct{})
		go func() { defer close(done); _, _ = l.postChat(a, streamedChat) }()
		l.waitWithin(time.Second, "the worker holds a request", func() bool { return w.running.Load() == 1 })
		time.Sleep(20 * time.Millisecond) // for a probe that was sent just before
		before := asked.Load()
		time.Sleep(600 * time.Millisecond)
		if n := asked.Load() - before; n != 0 {
			l.Errorf("a busy worker was probed %d times", n)
		}
		close(w.release)
		<-done
	})
}

func TestDeepProbeIsOffByDefault(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		w := l.startFakeVLLM("w1")
		_, asked := makeWedgeable(w)
		l.startAgentOver(nil, w)
		before := asked.Load() // includes the warm-up
		time.Sleep(time.Minute)
		if n := asked.Load() - before; n != 0 {
			l.Errorf("probed %d times", n)
		}
	})
}

func TestFailedGPUQuarantinesOnlyItsWorker(t *testing.T) {
	var xid atomic.Pointer[string]
	setXID := func(s string) { xid.Store(&s) }
	setXID("0")
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "DCGM_FI_DEV_FB_USED{gpu=\"0\"} 70000\nDCGM_FI_DEV_FB_FREE{gpu=\"0\"} 9000\nDCGM_FI_DEV_FB_USED{gpu=\"1\"} 70000\nDCGM_FI_DEV_FB_FREE{gpu=\"1\"} 9000\nDCGM_FI_DEV_XID_ERRORS{gpu=\"0\"} "+*xid.Load()+"\n")
	}))
	t.Cleanup(exporter.Close)
	x, y := newFakeVLLM(t, "x"), newFakeVLLM(t, "y")
	var cfg local.Config
	a := startAgent(t, func(c *local.Config) {
		c.Workers[0].GPUMetrics, c.Workers[0].GPUs = exporter.URL, []string{"0"}
		c.Workers[1].GPUMetrics, c.Workers[1].GPUs = exporter.URL+"/metrics", []string{"1"}
		cfg = *c
	}, x, y)
	testkit.Eventually(t, "the exporter is read", func() bool {
		return sumMetric(t, cfg, "spillway_local_worker_gpu_memory_used_bytes") == 2*70000<<20
	})
	setXID("31") // an application error, not a GPU fault
	testkit.Eventually(t, "the code is seen", func() bool { return sumMetric(t, cfg, "spillway_local_worker_gpu_xid") == 31 })
	if w := workerStatus(a, "x"); w.State != admin.StateReady {
		t.Errorf("an application error ejected the worker: %+v", w)
	}
	setXID("79") // GPU has fallen off the PCIe bus
	testkit.Eventually(t, "its worker is ejected", func() bool { return workerStatus(a, "x").State == admin.StateUnhealthy })
	if w := workerStatus(a, "x"); !strings.Contains(strings.ToLower(w.Reason), "gpu") {
		t.Errorf("the reason is %q", w.Reason)
	}
	if w := workerStatus(a, "y"); w.State != admin.StateReady {
		t.Errorf("the other worker is %+v", w)
	}
}

// failingWorkers are workers that serve model m, and whose answers to clients and to the zone itself fail by choice.
type failingWorkers struct {
	t              *testing.T
	log            testkit.LogBuffer
	clientStatus   [6]atomic.Int64 // by worker: the status of answers to clients; 0: by the request
	ownStatus      [6]atomic.Int64 // by worker: the status of answers to the zone's own requests; 0: 200
	ownRequests    [6]atomic.Int64 // by worker: the zone's own requests
	clientRequests [6]atomic.Int64 // by worker: clients' requests
}

// startZone runs a zone of n of them. A client's request that holds "mistake" is answered 500, one with "busy" 503.
func (e *failingWorkers) startZone(n int, change func(*local.Config)) *local.Agent {
	e.t.Helper()
	e.t.Cleanup(func() { e.log.PrintIfFailed(e.t) })
	a := startAgent(e.t, func(c *local.Config) {
		c.Log = slog.New(slog.NewTextHandler(&e.log, nil))
		for i := range n {
			s := httptest.NewServer(e.newHandler(i))
			e.t.Cleanup(s.Close)
			c.Workers = append(c.Workers, discover.Worker{Name: fmt.Sprint("w", i+1), URL: s.URL})
		}
		if change != nil {
			change(c)
		}
	})
	testkit.Eventually(e.t, "every worker ready", func() bool { return countReady(a) == n })
	for i := range n {
		e.ownRequests[i].Store(0) // the warm-up
	}
	return a
}

// wasEjectedBy reports whether the first worker was ejected by a failure of the zone's own request. The log keeps it: the
// status of the worker shows it for a second, until the next warm-up fails.
func (e *failingWorkers) wasEjectedBy(cause string) bool {
	return len(e.log.Lines("worker=w1", "to=sick", "ejected: errors: "+cause)) > 0
}

func (e *failingWorkers) newHandler(i int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		own := bytes.Contains(body, []byte(`"Hello"`))
		status := http.StatusOK
		switch {
		case r.URL.Path == "/v1/models":
			_, _ = io.WriteString(w, `{"data":[{"id":"m","owned_by":"sglang"}]}`)
			return
		case r.Method == http.MethodGet:
		case own:
			e.ownRequests[i].Add(1)
			status = int(e.ownStatus[i].Load())
		default:
			e.clientRequests[i].Add(1)
			switch status = int(e.clientStatus[i].Load()); {
			case status > 0:
			case bytes.Contains(body, []byte("mistake")):
				status = http.StatusInternalServerError
			case bytes.Contains(body, []byte("busy")):
				status = http.StatusServiceUnavailable
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if status > 0 {
			w.WriteHeader(status)
		}
		_, _ = io.WriteString(w, `{"choices":[],"error":{"message":"failed","code":500}}`)
	}
}

func (e *failingWorkers) countEjections() int {
	return len(e.log.Lines("worker changed state", "to=sick"))
}

func chatBodyWith(text string, i int) string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%s %d"}]}`, text, i)
}

// TestOneTenantsErrorsEjectNoWorker: 500s, or refusals for load, that one tenant's requests bring about. The workers answer the
// zone's own request and stay, by a run of errors and by the error rate alike.
func TestOneTenantsErrorsEjectNoWorker(t *testing.T) {
	t.Run("every worker", func(t *testing.T) {
		e := &failingWorkers{t: t}
		a := e.startZone(4, nil)
		for i := range 60 {
			if resp, _ := postChat(t, a, chatBodyWith("mistake", i)); resp.StatusCode != http.StatusInternalServerError {
				t.Fatalf("a client is answered %d", resp.StatusCode)
			}
		}
		testkit.Eventually(t, "a verification has passed", func() bool { return len(e.log.Lines("it stays")) > 0 })
		if n := countReady(a); n != 4 || e.countEjections() != 0 {
			t.Errorf("%d of 4 workers ready after %d ejections", n, e.countEjections())
		}
		for i := range 4 {
			if n := e.ownRequests[i].Load(); n > 2 {
				t.Errorf("worker %d was verified %d times", i+1, n)
			}
		}
	})
	for name, status := range map[string]int64{"errors of one worker": http.StatusInternalServerError, "refusals of one worker": http.StatusServiceUnavailable} {
		t.Run(name, func(t *testing.T) {
			e := &failingWorkers{t: t}
			a := e.startZone(4, func(c *local.Config) { c.Health.Samples, c.Health.Failures = 2, 1000 })
			e.clientStatus[0].Store(status)
			i := 0
			testkit.Eventually(t, "the worker has passed a verification", func() bool {
				postChat(t, a, chatBodyWith("hi", i))
				i++
				return len(e.log.Lines("it stays", "worker=w1")) > 0
			})
			if n := countReady(a); n != 4 || e.countEjections() != 0 || e.ownRequests[0].Load() == 0 {
				t.Errorf("%d of 4 workers ready after %d ejections", n, e.countEjections())
			}
		})
	}
}

// TestBrokenWorkerIsEjectedWithOneTenant: a worker that answers all requests with 500 is ejected in an installation without
// tenants.
func TestBrokenWorkerIsEjectedWithOneTenant(t *testing.T) {
	e := &failingWorkers{t: t}
	a := e.startZone(2, nil)
	e.clientStatus[0].Store(http.StatusInternalServerError)
	e.ownStatus[0].Store(http.StatusInternalServerError)
	i := 0
	testkit.Eventually(t, "it is out", func() bool {
		postChat(t, a, chatBodyWith("hi", i))
		i++
		return e.wasEjectedBy("POST /v1/completions: status 500")
	})
	if n := e.clientRequests[0].Load(); n > 100 {
		t.Errorf("%d requests of clients failed on it", n)
	}
	testkit.Eventually(t, "its ejection is logged", func() bool { return len(e.log.Lines("level=WARN", "it is ejected", "worker=w1")) > 0 })
	if n := len(e.log.Lines("level=WARN", "it is ejected", "worker=w1")); countReady(a) != 1 || n != 1 {
		t.Errorf("%d of 2 workers ready, %d warnings", countReady(a), n)
	}
}

// TestBrokenEmbeddingWorkerIsEjectedWithOneTenant: the request of the zone is one for embeddings; an engine that makes none
// refuses a completion all the same.
func TestBrokenEmbeddingWorkerIsEjectedWithOneTenant(t *testing.T) {
	e := &failingWorkers{t: t}
	a := e.startZone(2, nil)
	e.clientStatus[0].Store(http.StatusInternalServerError)
	ask := func(i int) {
		resp, err := testClient.Post("http://"+a.Addr().String()+"/v1/embeddings", "application/json", strings.NewReader(fmt.Sprintf(`{"model":"m","input":"hi %d"}`, i)))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	i := 0
	testkit.Eventually(t, "it passes as long as it answers such requests", func() bool { ask(i); i++; return len(e.log.Lines("it stays", "worker=w1")) > 0 })
	e.ownStatus[0].Store(http.StatusInternalServerError)
	testkit.Eventually(t, "it is out", func() bool {
		ask(i)
		i++
		return e.wasEjectedBy("POST /v1/embeddings: status 500")
	})
}

// TestErrorsOfTwoTenantsEjectWithoutVerification: the worker answers the zone's own requests, and those of two tenants not.
func TestErrorsOfTwoTenantsEjectWithoutVerification(t *testing.T) {
	e := &failingWorkers{t: t}
	p := newGatewayHarness(t)
	a := e.startZone(2, func(c *local.Config) {
		p.joinGateway(c)
		c.Health.Backoff = 1 << 40 // about 18 minutes
	})
	e.clientStatus[0].Store(http.StatusInternalServerError)
	send := func(tenant string, i int) {
		if _, _, err := p.postFromGateway(p.gateway, a, forward.Hop{Tenant: tenant}, chatBodyWith("hi", i)); err != nil {
			t.Fatal(err)
		}
	}
	i := 0
	testkit.Eventually(t, "the worker has failed often for one tenant", func() bool {
		send("ann", i)
		i++
		return e.clientRequests[0].Load() >= 12
	})
	testkit.Eventually(t, "it has passed a verification", func() bool { return len(e.log.Lines("it stays", "worker=w1")) > 0 })
	if e.countEjections() != 0 {
		t.Fatalf("it was ejected for one tenant: %s", e.log.String())
	}
	asked := e.ownRequests[0].Load()
	testkit.Eventually(t, "it is out once two tenants fail", func() bool {
		send("ann", i)
		send("bob", i)
		i++
		return strings.HasPrefix(workerStatus(a, "w1").Reason, "ejected: errors: a request was answered with status 500")
	})
	if n := e.ownRequests[0].Load(); n != asked && len(e.log.Lines("it is ejected")) != 0 {
		t.Errorf("it was verified %d times more", n-asked)
	}
	e.clientStatus[1].Store(http.StatusInternalServerError)
	for range 20 {
		send("ann", i)
		send("bob", i)
		if i++; countReady(a) != 1 {
			t.Fatalf("%d of 2 workers ready, and max_ejected is a half", countReady(a))
		}
	}
}

// TestVerificationsRespectMaxEjected: all workers fail all requests, and half of them stay.
func TestVerificationsRespectMaxEjected(t *testing.T) {
	e := &failingWorkers{t: t}
	a := e.startZone(4, func(c *local.Config) { c.Health.Backoff = 1 << 40 }) // about 18 minutes
	for i := range 4 {
		e.clientStatus[i].Store(http.StatusInternalServerError)
		e.ownStatus[i].Store(http.StatusInternalServerError)
	}
	i := 0
	testkit.Eventually(t, "two are out", func() bool { postChat(t, a, chatBodyWith("hi", i)); i++; return countReady(a) == 2 })
	for ; i < 200; i++ {
		if postChat(t, a, chatBodyWith("hi", i)); countReady(a) != 2 {
			t.Fatalf("%d of 4 workers ready", countReady(a))
		}
	}
}
