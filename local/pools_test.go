package local_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
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
