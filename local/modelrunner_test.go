package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/modelload"
)

// startPoolZone has one worker of the pool gold and one of no pool, both of which can load the adapter sql.
func startPoolZone(t *testing.T, pool spec.WorkerPool, gold, shared *gpu.Server) *local.Agent {
	t.Helper()
	pool.Name, pool.Labels = "gold", map[string]string{"tier": "gold"}
	return startLoadingZone(t, []spec.Model{adapterModel("sql")}, func(c *local.Config) {
		c.Spec.Pools = []spec.WorkerPool{pool}
		c.Workers[0].Labels = pool.Labels
	}, gold, shared)
}

// TestColdModelOfPoolIsLoadedOnPoolWorker: others have the model ready, and may not be asked. The request waits for a
// load on a worker of its pool, and requests of no pool have theirs loaded where they may go.
func TestColdModelOfPoolIsLoadedOnPoolWorker(t *testing.T) {
	gold, shared := startSimWorker(t, 2, 30*time.Millisecond), startSimWorker(t, 2, 30*time.Millisecond)
	a := startPoolZone(t, spec.WorkerPool{Classes: []spec.Class{spec.Interactive}}, gold, shared)
	ask := func(class, want string) {
		t.Helper()
		if at := askWithClass(t, a, "sql", class); at != want {
			t.Errorf("a request of class %s was answered by %q, want %s", class, at, want)
		}
	}
	ask("batch", "us/us-a/w2")
	if holdsModel(gold, "sql") || !holdsModel(shared, "sql") {
		t.Fatal("the shared worker's model was not loaded there, or also elsewhere")
	}
	ask("interactive", "us/us-a/w1")
	ask("batch", "us/us-a/w2")
	if n := countLoads(gold, shared); n != 2 || !holdsModel(gold, "sql") {
		t.Errorf("there were %d loads, want one for each", n)
	}
}

// TestDedicatedWorkersAreNotSharedCapacity: the summary of a zone counts the workers that any tenant may use. The workers
// dedicated to tenants are counted only if there are no others.
func TestDedicatedWorkersAreNotSharedCapacity(t *testing.T) {
	zone := func(pool spec.WorkerPool) (a *local.Agent, shared *fakeVLLM) {
		shared = newFakeVLLM(t, "w2")
		return startAgent(t, func(c *local.Config) {
			pool.Name, pool.Labels = "gold", map[string]string{"tier": "gold"}
			c.Spec = &spec.Spec{Models: []spec.Model{{Name: baseModel}}, Pools: []spec.WorkerPool{pool}}
			c.Workers[0].Labels = pool.Labels
		}, newFakeVLLM(t, "w1"), shared), shared
	}
	a, shared := zone(spec.WorkerPool{Tenants: []string{"acme"}})
	if m := modelSummary(a); m.Ready != 1 || m.Total != 2 || m.Headroom[0] <= 0 || m.Hardware[0].Ready != 1 {
		t.Errorf("with a worker set apart for a tenant the summary is %+v", m)
	}
	shared.CloseClientConnections()
	shared.Close()
	testkit.Eventually(t, "only the dedicated worker left, and stated", func() bool {
		m := modelSummary(a)
		return countReady(a) == 1 && m.Ready == 1 && m.Headroom[0] > 0
	})
	if a, _ = zone(spec.WorkerPool{Models: []string{baseModel}}); modelSummary(a).Ready != 2 {
		t.Errorf("a pool for everybody's requests is not stated: %+v", modelSummary(a))
	}
}

// askWithClass asks for a model as a class and says who answered.
func askWithClass(t *testing.T, a *local.Agent, model, class string) string {
	t.Helper()
	req, err := newRequest(a, chatBody(model))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Spillway-Class", class)
	resp, err := testClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != 200 {
		return resp.Status
	}
	return strings.TrimSpace(resp.Header.Get("X-Spillway-Route"))
}

func newRequest(a *local.Agent, body string) (*http.Request, error) {
	return http.NewRequest(http.MethodPost, "http://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(body))
}

// TestExplainDescribesColdModelOnce: a worker that could load the model is listed once, and what becomes of the request is
// said once: it waits for the load.
func TestExplainDescribesColdModelOnce(t *testing.T) {
	a := startLoadingZone(t, []spec.Model{adapterModel("sql")}, nil, startSimWorker(t, 2, time.Second))
	recs, err := a.Explain(admin.ExplainQuery{Model: "sql"})
	if why := ineligibleReasons(t, recs, err); len(why) != 1 || why["w1"] != "cold" {
		t.Errorf("the workers are explained as %v", why)
	}
	if notes := strings.Join(recs[0].Notes, "; "); strings.Contains(notes, "refused") || !strings.Contains(notes, "a request waits for it") {
		t.Errorf("the request is explained as %q", notes)
	}
}

// TestZoneAcceptsNewModelNamesWithoutLimit: one worker serves one model, which changes its name more often than there may be models at
// once. Each new name is served.
func TestZoneAcceptsNewModelNamesWithoutLimit(t *testing.T) {
	s := newPlainServer(t, nil)
	a := startAgent(t, nil)
	for i := range capacity.MaxModels + 20 {
		name := fmt.Sprint("adapter-", i)
		a.SetWorkers([]discover.Worker{{Name: "w1", URL: s.URL, Models: []string{name}, Engine: "openai"}})
		if sum := a.Summary(time.Now()); i > capacity.MaxModels-2 && sum.FindModel(name) == nil {
			t.Fatalf("after %d names %s is not served", i, name)
		}
	}
}

const baseModel = "llama-3.1-8b"

// startSimWorker starts a worker that takes adapters.
func startSimWorker(t *testing.T, adapters int, cold time.Duration) *gpu.Server {
	t.Helper()
	w, err := gpu.New(gpu.Config{Listen: "127.0.0.1:0", GPU: "H100", Model: "Llama-3.1-8B", ServedModel: baseModel, Speed: 50, MaxAdapters: adapters, ColdStart: cold})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := w.Stop(ctx); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	return w
}

// startLoadingZone runs an agent with simulated workers and a spec of the base model and adapters.
func startLoadingZone(t *testing.T, models []spec.Model, change func(*local.Config), workers ...*gpu.Server) *local.Agent {
	t.Helper()
	a := startAgent(t, func(c *local.Config) {
		c.Spec = &spec.Spec{Models: append([]spec.Model{{Name: baseModel}}, models...)}
		c.ModelLoad = modelload.Config{MinResidency: 20 * time.Millisecond, Backoff: 200 * time.Millisecond}
		for i, w := range workers {
			c.Workers = append(c.Workers, discover.Worker{Name: fmt.Sprintf("w%d", i+1), URL: w.URL(), GPU: "H100"})
		}
		if change != nil {
			change(c)
		}
	})
	testkit.Eventually(t, "the workers are ready", func() bool { return countReady(a) == len(workers) })
	return a
}

func adapterModel(name string) spec.Model {
	return spec.Model{Name: name, Parent: baseModel, Load: spec.LoadSource{Path: "/adapters/" + name}}
}

func chatBody(model string) string {
	return `{"model":"` + model + `","max_tokens":4,"messages":[{"role":"user","content":"hi"}]}`
}

// postAll posts so many requests for a model at once and counts what was answered with 200.
func postAll(t *testing.T, a *local.Agent, model string, n int) int {
	t.Helper()
	var wg sync.WaitGroup
	var ok atomic.Int64
	for range n {
		wg.Go(func() {
			resp, err := testClient.Post("http://"+a.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(chatBody(model)))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			text, _ := io.ReadAll(resp.Body) // looked at only when it is an error
			if resp.StatusCode == http.StatusOK {
				ok.Add(1)
			} else {
				t.Errorf("%d %s", resp.StatusCode, text)
			}
		})
	}
	wg.Wait()
	return int(ok.Load())
}

func countLoads(ws ...*gpu.Server) (n int) {
	for _, w := range ws {
		c, _ := w.LifecycleStats()
		n += c.Loads
	}
	return n
}

func holdsModel(w *gpu.Server, model string) bool {
	_, names := w.LifecycleStats()
	return strings.Contains(" "+strings.Join(names, " ")+" ", " "+model+" ")
}

func TestColdModelIsLoadedOnceForAllWaiting(t *testing.T) {
	w1, w2 := startSimWorker(t, 2, 300*time.Millisecond), startSimWorker(t, 2, 300*time.Millisecond)
	var cfg *local.Config
	a := startLoadingZone(t, []spec.Model{adapterModel("sql")}, func(c *local.Config) { cfg = c }, w1, w2)
	if s := a.Summary(time.Now()); s.FindModel("sql") == nil || s.FindModel("sql").Warm != 2 || s.FindModel("sql").Ready != 0 || s.FindModel("sql").WarmMillis != 2000 {
		t.Errorf("an adapter that two workers could load in a moment is stated as %+v", s.FindModel("sql"))
	}
	// The first who asks leaves before the load has ended: that must not end it.
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(chatBody("sql")))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if resp, err := testClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	if n := postAll(t, a, "sql", 20); n != 20 {
		t.Errorf("%d of 20 were answered", n)
	}
	if n := countLoads(w1, w2); n != 1 {
		t.Errorf("%d loads for one cold model", n)
	}
	if n := sumMetric(t, *cfg, "spillway_local_model_changes_total"); n != 1 {
		t.Errorf("%v changes were counted", n)
	}
	if s := a.Summary(time.Now()); s.FindModel("sql").Ready != 1 || s.FindModel("sql").Warm != 1 || s.FindModel("sql").WarmMillis < 250 || s.FindModel("sql").WarmMillis == 2000 {
		t.Errorf("stated as %+v", s.FindModel("sql"))
	}
	other := workerStatus(a, "w1")
	if holdsModel(w1, "sql") {
		other = workerStatus(a, "w2")
	}
	if other.ModelStates["sql"] != "cold" {
		t.Errorf("status says %+v", other)
	}
}

func TestIdleModelIsUnloadedAndWarmReplicasStay(t *testing.T) {
	idle, floor := adapterModel("sql"), adapterModel("chat")
	idle.IdleAfter, floor.IdleAfter, floor.WarmReplicas = spec.Duration(100*time.Millisecond), spec.Duration(100*time.Millisecond), 1
	w1, w2 := startSimWorker(t, 4, 10*time.Millisecond), startSimWorker(t, 4, 10*time.Millisecond)
	a := startLoadingZone(t, []spec.Model{idle, floor}, nil, w1, w2)
	testkit.Eventually(t, "the floor is warm without anybody asking", func() bool { return holdsModel(w1, "chat") != holdsModel(w2, "chat") })
	if n := postAll(t, a, "sql", 1); n != 1 {
		t.Fatal("the cold model was not served")
	}
	testkit.Eventually(t, "the idle model is let go", func() bool { return !holdsModel(w1, "sql") && !holdsModel(w2, "sql") })
	if holdsModel(w1, "chat") == holdsModel(w2, "chat") {
		t.Error("the floor of one warm replica is not kept")
	}
	if n := postAll(t, a, "sql", 3); n != 3 {
		t.Error("it was not loaded anew")
	}
}

func TestFailedLoadIsTriedOnNextWorker(t *testing.T) {
	w1, w2 := startSimWorker(t, 0, 0), startSimWorker(t, 2, 10*time.Millisecond) // w1 knows nothing of adapters
	gone := adapterModel("gone")
	gone.Load.Path = "/adapters/missing"
	a := startLoadingZone(t, []spec.Model{adapterModel("sql"), gone}, nil, w1, w2)
	if n := postAll(t, a, "sql", 10); n != 10 || !holdsModel(w2, "sql") {
		t.Errorf("%d of 10 were answered", n)
	}
	resp, text := postChat(t, a, chatBody("gone"))
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "model_load_failed") || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s %v", resp.StatusCode, text, resp.Header)
	}
}

func TestDeadlineBeforeLoadIsRefusedAtOnce(t *testing.T) {
	w := startSimWorker(t, 1, time.Hour)
	a := startLoadingZone(t, []spec.Model{adapterModel("sql")}, nil, w)
	resp, text := postWithDeadline(t, a, "sql", 300*time.Millisecond)
	if resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(text, "deadline_unmeetable") || resp.Header.Get("Retry-After") != "2" || resp.Header.Get("x-should-retry") == "false" {
		t.Errorf("%d %s %v", resp.StatusCode, text, resp.Header)
	}
}

// TestDeadlineThatPassesDuringLoad: the answer is the same as for a deadline that is too short from the start. Only
// requests without a deadline are refused because the zone has no room for the model.
func TestDeadlineThatPassesDuringLoad(t *testing.T) {
	w := startSimWorker(t, 1, time.Hour)
	a := startLoadingZone(t, []spec.Model{adapterModel("sql")}, nil, w)
	resp, text := postWithDeadline(t, a, "sql", 3*time.Second) // a load is estimated to take 2 s
	if resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(text, "deadline_unmeetable") || !strings.Contains(text, "load") || resp.Header.Get("Retry-After") == "" || resp.Header.Get("x-should-retry") == "false" {
		t.Errorf("%d %s %v", resp.StatusCode, text, resp.Header)
	}
}

// postWithDeadline asks for a model, for an answer within so long.
func postWithDeadline(t *testing.T, a *local.Agent, model string, within time.Duration) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(chatBody(model)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(forward.HeaderClientDeadline, strconv.FormatInt(within.Milliseconds(), 10))
	resp, err := testClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body) // checked by what it holds
	return resp, string(text)
}

func TestLeastRecentlyUsedModelIsUnloadedFirst(t *testing.T) {
	w := startSimWorker(t, 2, 10*time.Millisecond)
	a := startLoadingZone(t, []spec.Model{adapterModel("a"), adapterModel("b"), adapterModel("c")}, func(c *local.Config) { c.ModelLoad.MinResidency = time.Nanosecond }, w)
	testkit.Eventually(t, "the engine tells its slots", func() bool { return len(workerStatus(a, "w1").ModelStates) == 3 })
	for _, m := range []string{"a", "b", "a", "c"} {
		if postAll(t, a, m, 1) != 1 {
			t.Fatalf("%s was not served", m)
		}
	}
	if _, names := w.LifecycleStats(); strings.Join(names, " ") != "a c" {
		t.Errorf("it holds %v, and b was used the longest ago", names)
	}
}

func TestIdleWorkerSleepsAndIsWokenOnce(t *testing.T) {
	w := startSimWorker(t, 0, 50*time.Millisecond)
	a := startLoadingZone(t, nil, func(c *local.Config) {
		c.Spec.Models[0].IdleAfter = spec.Duration(150 * time.Millisecond)
		c.Workers[0].Wake = true
	}, w)
	testkit.Eventually(t, "it is told to sleep", func() bool { c, _ := w.LifecycleStats(); return c.Sleeps == 1 })
	testkit.Eventually(t, "it sleeps", func() bool { return workerStatus(a, "w1").Reason == "asleep" })
	if s := a.Summary(time.Now()); s.FindModel(baseModel).Warm != 1 || s.FindModel(baseModel).Ready != 0 {
		t.Errorf("stated as %+v", s.FindModel(baseModel))
	}
	before, _ := w.LifecycleStats()
	if n := postAll(t, a, baseModel, 20); n != 20 {
		t.Errorf("%d of 20 were answered", n)
	}
	after, _ := w.LifecycleStats()
	if before.Sleeps != 1 || after.Wakes != 1 {
		t.Errorf("put to sleep %d times, woken %d times", before.Sleeps, after.Wakes)
	}
}

// TestTritonAndOllamaModelsAreLoadedByTheZone: Triton refuses what is not loaded, and Ollama would load it for each who asks.
func TestTritonAndOllamaModelsAreLoadedByTheZone(t *testing.T) {
	for _, c := range []struct{ engine, load string }{
		{"triton", "/v2/repository/models/m/load"}, {"ollama", "/api/generate"},
	} {
		t.Run(c.engine, func(t *testing.T) {
			var loaded, calls atomic.Int64
			allWait := make(chan struct{})
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body) // empty where there is none
				is := loaded.Load() == 1
				switch r.URL.Path {
				case "/v2/health/live", "/api/version":
				case "/v2/repository/index":
					_ = json.NewEncoder(w).Encode([]map[string]string{{"name": "m", "state": map[bool]string{true: "READY", false: "UNAVAILABLE"}[is]}})
				case "/api/tags":
					_, _ = io.WriteString(w, `{"models":[{"model":"m"}]}`)
				case "/api/ps":
					_, _ = io.WriteString(w, map[bool]string{true: `{"models":[{"model":"m"}]}`, false: `{"models":[]}`}[is])
				case c.load:
					calls.Add(1)
					<-allWait
					loaded.Store(1)
				case "/v1/chat/completions":
					if !is {
						http.Error(w, "not loaded: "+string(body), http.StatusConflict)
						return
					}
					_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"hello"}}]}`)
				default:
					http.NotFound(w, r)
				}
			}))
			t.Cleanup(s.Close)
			var cfg local.Config
			a := startAgent(t, func(with *local.Config) {
				with.Workers = []discover.Worker{{Name: "w", URL: s.URL, Engine: c.engine, Metrics: s.URL + "/metrics"}}
				cfg = *with
			})
			testkit.Eventually(t, "it is ready", func() bool { return countReady(a) == 1 && workerStatus(a, "w").ModelStates["m"] == "cold" })
			if n := a.Summary(time.Now()); n.FindModel("m").Cold != 1 || n.FindModel("m").ColdMillis != 30_000 {
				t.Errorf("stated as %+v", n.FindModel("m"))
			}
			answered := make(chan int, 1)
			go func() { answered <- postAll(t, a, "m", 20) }()
			testkit.Eventually(t, "all requests wait for the load", func() bool { return calls.Load() > 0 && sumMetric(t, cfg, "spillway_local_queue_length") == 20 })
			close(allWait)
			if n := <-answered; n != 20 || calls.Load() != 1 {
				t.Errorf("%d of 20 were answered after %d loads", n, calls.Load())
			}
		})
	}
}

func TestExplainShowsColdModel(t *testing.T) {
	w := startSimWorker(t, 1, time.Hour)
	a := startLoadingZone(t, []spec.Model{adapterModel("sql")}, func(c *local.Config) { c.Registry = telemetry.NewRegistry("local", "a", "test") }, w)
	recs, err := a.Explain(admin.ExplainQuery{Model: "sql"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(recs)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte("a load takes about 2s")) || !bytes.Contains(text, []byte(`"cold"`)) {
		t.Errorf("%s", text)
	}
}
