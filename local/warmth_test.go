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
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/warm"
)

const base = "llama-3.1-8b"

// standIn starts a worker that takes adapters.
func standIn(t *testing.T, adapters int, cold time.Duration) *gpu.Server {
	t.Helper()
	w, err := gpu.New(gpu.Config{Listen: "127.0.0.1:0", GPU: "H100", Model: "Llama-3.1-8B", Served: base, Speed: 50, Adapters: adapters, ColdStart: cold})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := w.Stop(ctx); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	return w
}

// warmZone runs an agent over stand-ins, with a spec of the base model and of adapters.
func warmZone(t *testing.T, models []spec.Model, change func(*local.Config), workers ...*gpu.Server) *local.Agent {
	t.Helper()
	a := start(t, func(c *local.Config) {
		c.Spec = &spec.Spec{Models: append([]spec.Model{{Name: base}}, models...)}
		c.Warm = warm.Config{Stay: 20 * time.Millisecond, Backoff: 200 * time.Millisecond}
		for i, w := range workers {
			c.Workers = append(c.Workers, discover.Worker{Name: fmt.Sprintf("w%d", i+1), URL: w.URL(), GPU: "H100"})
		}
		if change != nil {
			change(c)
		}
	})
	eventually(t, "the workers are ready", func() bool { return ready(a) == len(workers) })
	return a
}

func lora(name string) spec.Model {
	return spec.Model{Name: name, Parent: base, Load: spec.LoadFrom{Path: "/adapters/" + name}}
}

func asks(model string) string {
	return `{"model":"` + model + `","max_tokens":4,"messages":[{"role":"user","content":"hi"}]}`
}

// all posts so many requests for a model at once and counts what was answered with 200.
func all(t *testing.T, a *local.Agent, model string, n int) int {
	t.Helper()
	var wg sync.WaitGroup
	var ok atomic.Int64
	for range n {
		wg.Go(func() {
			resp, err := client.Post("http://"+a.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(asks(model)))
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

func loads(ws ...*gpu.Server) (n int) {
	for _, w := range ws {
		c, _ := w.Shelf()
		n += c.Loads
	}
	return n
}

func holds(w *gpu.Server, model string) bool {
	_, names := w.Shelf()
	return strings.Contains(" "+strings.Join(names, " ")+" ", " "+model+" ")
}

func TestAColdModelIsLoadedOnceForAllWhoWait(t *testing.T) {
	w1, w2 := standIn(t, 2, 300*time.Millisecond), standIn(t, 2, 300*time.Millisecond)
	var cfg *local.Config
	a := warmZone(t, []spec.Model{lora("sql")}, func(c *local.Config) { cfg = c }, w1, w2)
	if s := a.Summary(time.Now()); s.Model("sql") == nil || s.Model("sql").Warm != 2 || s.Model("sql").Ready != 0 || s.Model("sql").WarmMillis != 2000 {
		t.Errorf("an adapter that two workers could load in a moment is stated as %+v", s.Model("sql"))
	}
	// The first who asks leaves before the load has ended: that must not end it.
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(asks("sql")))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	if n := all(t, a, "sql", 20); n != 20 {
		t.Errorf("%d of 20 were answered", n)
	}
	if n := loads(w1, w2); n != 1 {
		t.Errorf("%d loads for one cold model", n)
	}
	if n := gathered(t, *cfg, "spillway_local_model_changes_total"); n != 1 {
		t.Errorf("%v changes were counted", n)
	}
	if s := a.Summary(time.Now()); s.Model("sql").Ready != 1 || s.Model("sql").Warm != 1 || s.Model("sql").WarmMillis < 250 || s.Model("sql").WarmMillis == 2000 {
		t.Errorf("stated as %+v", s.Model("sql"))
	}
	other := status(a, "w1")
	if holds(w1, "sql") {
		other = status(a, "w2")
	}
	if other.ModelStates["sql"] != "cold" {
		t.Errorf("status says %+v", other)
	}
}

func TestAnIdleModelIsLetGoAndTheFloorStays(t *testing.T) {
	idle, floor := lora("sql"), lora("chat")
	idle.IdleAfter, floor.IdleAfter, floor.WarmReplicas = spec.Duration(100*time.Millisecond), spec.Duration(100*time.Millisecond), 1
	w1, w2 := standIn(t, 4, 10*time.Millisecond), standIn(t, 4, 10*time.Millisecond)
	a := warmZone(t, []spec.Model{idle, floor}, nil, w1, w2)
	eventually(t, "the floor is warm without anybody asking", func() bool { return holds(w1, "chat") != holds(w2, "chat") })
	if n := all(t, a, "sql", 1); n != 1 {
		t.Fatal("the cold model was not served")
	}
	eventually(t, "the idle model is let go", func() bool { return !holds(w1, "sql") && !holds(w2, "sql") })
	if holds(w1, "chat") == holds(w2, "chat") {
		t.Error("the floor of one warm replica is not kept")
	}
	if n := all(t, a, "sql", 3); n != 3 {
		t.Error("it was not loaded anew")
	}
}

func TestAFailedLoadGoesToTheNextWorker(t *testing.T) {
	w1, w2 := standIn(t, 0, 0), standIn(t, 2, 10*time.Millisecond) // w1 knows nothing of adapters
	gone := lora("gone")
	gone.Load.Path = "/adapters/missing"
	a := warmZone(t, []spec.Model{lora("sql"), gone}, nil, w1, w2)
	if n := all(t, a, "sql", 10); n != 10 || !holds(w2, "sql") {
		t.Errorf("%d of 10 were answered", n)
	}
	resp, text := post(t, a, asks("gone"))
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "model_load_failed") || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s %v", resp.StatusCode, text, resp.Header)
	}
}

func TestWhoCannotWaitForALoadIsToldAtOnce(t *testing.T) {
	w := standIn(t, 1, time.Hour)
	a := warmZone(t, []spec.Model{lora("sql")}, nil, w)
	resp, text := withDeadline(t, a, "sql", 300*time.Millisecond)
	if resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(text, "deadline_unmeetable") || resp.Header.Get("Retry-After") != "2" || resp.Header.Get("x-should-retry") == "false" {
		t.Errorf("%d %s %v", resp.StatusCode, text, resp.Header)
	}
}

// TestADeadlineThatPassesDuringALoad: the answer is of the same kind as the one to who could not wait at all. Only who
// named no deadline is told that the zone has no room for the model.
func TestADeadlineThatPassesDuringALoad(t *testing.T) {
	w := standIn(t, 1, time.Hour)
	a := warmZone(t, []spec.Model{lora("sql")}, nil, w)
	resp, text := withDeadline(t, a, "sql", 3*time.Second) // a load is believed to take 2 s
	if resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(text, "deadline_unmeetable") || !strings.Contains(text, "load") || resp.Header.Get("Retry-After") == "" || resp.Header.Get("x-should-retry") == "false" {
		t.Errorf("%d %s %v", resp.StatusCode, text, resp.Header)
	}
}

// withDeadline asks for a model, for an answer within so long.
func withDeadline(t *testing.T, a *local.Agent, model string, within time.Duration) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(asks(model)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(relay.HeaderClientDeadline, strconv.FormatInt(within.Milliseconds(), 10))
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body) // checked by what it holds
	return resp, string(text)
}

func TestTheModelUsedTheLongestAgoMakesRoom(t *testing.T) {
	w := standIn(t, 2, 10*time.Millisecond)
	a := warmZone(t, []spec.Model{lora("a"), lora("b"), lora("c")}, func(c *local.Config) { c.Warm.Stay = time.Nanosecond }, w)
	eventually(t, "the engine tells its slots", func() bool { return len(status(a, "w1").ModelStates) == 3 })
	for _, m := range []string{"a", "b", "a", "c"} {
		if all(t, a, m, 1) != 1 {
			t.Fatalf("%s was not served", m)
		}
	}
	if _, names := w.Shelf(); strings.Join(names, " ") != "a c" {
		t.Errorf("it holds %v, and b was used the longest ago", names)
	}
}

func TestAnIdleWorkerSleepsAndIsWokenOnce(t *testing.T) {
	w := standIn(t, 0, 50*time.Millisecond)
	a := warmZone(t, nil, func(c *local.Config) {
		c.Spec.Models[0].IdleAfter = spec.Duration(150 * time.Millisecond)
		c.Workers[0].Wake = true
	}, w)
	eventually(t, "it is told to sleep", func() bool { c, _ := w.Shelf(); return c.Sleeps == 1 })
	eventually(t, "it sleeps", func() bool { return status(a, "w1").Reason == "asleep" })
	if s := a.Summary(time.Now()); s.Model(base).Warm != 1 || s.Model(base).Ready != 0 {
		t.Errorf("stated as %+v", s.Model(base))
	}
	before, _ := w.Shelf()
	if n := all(t, a, base, 20); n != 20 {
		t.Errorf("%d of 20 were answered", n)
	}
	after, _ := w.Shelf()
	if before.Sleeps != 1 || after.Wakes != 1 {
		t.Errorf("put to sleep %d times, woken %d times", before.Sleeps, after.Wakes)
	}
}

// TestEnginesThatLoadModels: Triton refuses what is not loaded, and Ollama would load it for each who asks.
func TestEnginesThatLoadModels(t *testing.T) {
	for _, c := range []struct{ engine, load string }{
		{"triton", "/v2/repository/models/m/load"}, {"ollama", "/api/generate"},
	} {
		t.Run(c.engine, func(t *testing.T) {
			var loaded, calls atomic.Int64
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
					time.Sleep(30 * time.Millisecond)
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
			a := start(t, func(cfg *local.Config) {
				cfg.Workers = []discover.Worker{{Name: "w", URL: s.URL, Engine: c.engine, Metrics: s.URL + "/metrics"}}
			})
			eventually(t, "it is ready", func() bool { return ready(a) == 1 && status(a, "w").ModelStates["m"] == "cold" })
			if n := a.Summary(time.Now()); n.Model("m").Cold != 1 || n.Model("m").ColdMillis != 30_000 {
				t.Errorf("stated as %+v", n.Model("m"))
			}
			if n := all(t, a, "m", 20); n != 20 || calls.Load() != 1 {
				t.Errorf("%d of 20 were answered after %d loads", n, calls.Load())
			}
		})
	}
}

func TestExplainSaysThatAModelIsCold(t *testing.T) {
	w := standIn(t, 1, time.Hour)
	a := warmZone(t, []spec.Model{lora("sql")}, func(c *local.Config) { c.Registry = telemetry.NewRegistry("local", "a", "test") }, w)
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
