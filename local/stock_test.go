package local_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local"
)

// poolZone has one worker of the pool gold and one of no pool, both of which can load the adapter sql.
func poolZone(t *testing.T, pool spec.Pool, gold, shared *gpu.Server) *local.Agent {
	t.Helper()
	pool.Name, pool.Labels = "gold", map[string]string{"tier": "gold"}
	return warmZone(t, []spec.Model{lora("sql")}, func(c *local.Config) {
		c.Spec.Pools = []spec.Pool{pool}
		c.Workers[0].Labels = pool.Labels
	}, gold, shared)
}

// TestAPoolsColdModelIsLoadedOnItsOwnWorker: others have the model ready, and may not be asked. The request waits for a
// load on a worker of its pool, and requests of no pool have theirs loaded where they may go.
func TestAPoolsColdModelIsLoadedOnItsOwnWorker(t *testing.T) {
	gold, shared := standIn(t, 2, 30*time.Millisecond), standIn(t, 2, 30*time.Millisecond)
	a := poolZone(t, spec.Pool{Classes: []spec.Class{spec.Interactive}}, gold, shared)
	ask := func(class, want string) {
		t.Helper()
		if at := askAs(t, a, "sql", class); at != want {
			t.Errorf("a request of class %s was answered by %q, want %s", class, at, want)
		}
	}
	ask("batch", "us/us-a/w2")
	if holds(gold, "sql") || !holds(shared, "sql") {
		t.Fatal("the shared worker's model was not loaded there, or also elsewhere")
	}
	ask("interactive", "us/us-a/w1")
	ask("batch", "us/us-a/w2")
	if n := loads(gold, shared); n != 2 || !holds(gold, "sql") {
		t.Errorf("there were %d loads, want one for each", n)
	}
}

// TestDedicatedWorkersAreNobodyElsesCapacity: the zone's summary offers what anybody may use. Only where there is nothing
// else does it state what is set apart for tenants.
func TestDedicatedWorkersAreNobodyElsesCapacity(t *testing.T) {
	zone := func(pool spec.Pool) (a *local.Agent, shared *vllm) {
		shared = newVLLM(t, "w2")
		return start(t, func(c *local.Config) {
			pool.Name, pool.Labels = "gold", map[string]string{"tier": "gold"}
			c.Spec = &spec.Spec{Models: []spec.Model{{Name: base}}, Pools: []spec.Pool{pool}}
			c.Workers[0].Labels = pool.Labels
		}, newVLLM(t, "w1"), shared), shared
	}
	a, shared := zone(spec.Pool{Tenants: []string{"acme"}})
	if m := model(a); m.Ready != 1 || m.Total != 2 || m.Headroom[0] <= 0 || m.Hardware[0].Ready != 1 {
		t.Errorf("with a worker set apart for a tenant the summary is %+v", m)
	}
	shared.CloseClientConnections()
	shared.Close()
	eventually(t, "only the dedicated worker left, and stated", func() bool {
		m := model(a)
		return ready(a) == 1 && m.Ready == 1 && m.Headroom[0] > 0
	})
	if a, _ = zone(spec.Pool{Models: []string{base}}); model(a).Ready != 2 {
		t.Errorf("a pool for everybody's requests is not stated: %+v", model(a))
	}
}

// askAs asks for a model as a class and says who answered.
func askAs(t *testing.T, a *local.Agent, model, class string) string {
	t.Helper()
	req, err := newRequest(a, asks(model))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Spillway-Class", class)
	resp, err := client.Do(req)
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

// TestExplainSaysOneThingOfAColdModel: a worker that could load the model is listed once, and what becomes of the request is
// said once: it waits for the load.
func TestExplainSaysOneThingOfAColdModel(t *testing.T) {
	a := warmZone(t, []spec.Model{lora("sql")}, nil, standIn(t, 2, time.Second))
	recs, err := a.Explain(admin.ExplainQuery{Model: "sql"})
	if why := dropped(t, recs, err); len(why) != 1 || why["w1"] != "cold" {
		t.Errorf("the workers are explained as %v", why)
	}
	if notes := strings.Join(recs[0].Notes, "; "); strings.Contains(notes, "refused") || !strings.Contains(notes, "a request waits for it") {
		t.Errorf("the request is explained as %q", notes)
	}
}
