package local_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local"
)

// one takes 64 tokens: with this body one request at a time.
const one = `{"model":"llama-3.1-8b","stream":true,"max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`

// send posts with a header and returns the status, the answer's head and its body.
func send(t *testing.T, a *local.Agent, name, value string) (int, http.Header, string) {
	t.Helper()
	req, _ := http.NewRequest(http.MethodPost, "http://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(one))
	req.Header.Set(name, value)
	resp, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return 0, nil, ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(text)
}

func TestWhoWaitsIsShownAndCounted(t *testing.T) {
	w := newVLLM(t, "w1")
	w.kv = 4
	dir, err := os.MkdirTemp("", "q") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "a", "admin.sock")
	reg := telemetry.NewRegistry("local", "a", "test")
	a := start(t, func(c *local.Config) {
		c.AdminSocket, c.Registry = socket, reg
		c.Spec = &spec.Spec{Routing: spec.Routing{Queue: spec.Queueing{MaxRequests: 3, TenantShare: 1}}}
	}, w)
	w.set("hold")
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { send(t, a, "X-Spillway-Class", "interactive") })
	}
	c, err := admin.Dial(socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var q *admin.QueueAnswer
	eventually(t, "one running and two waiting", func() bool {
		q, err = c.Queue(context.Background())
		return err == nil && len(q.Models) == 1 && q.Models[0].Waiting == 2 && q.Models[0].Classes[0].Running == 1
	})
	m := q.Models[0]
	if k := m.Classes[0]; q.Node != "us/us-a/a" || m.MaxWaiting != 3 || k.Class != "interactive" || len(k.Tenants) != 1 || k.Tenants[0].Waiting != 2 || k.Passed != 1 || m.Bytes == 0 {
		t.Errorf("queue is %+v", q)
	}
	// The batch class may fill half of three: one waits, the next is refused.
	wg.Go(func() { send(t, a, "X-Spillway-Class", "batch") })
	eventually(t, "a batch request waiting", func() bool { q, _ = c.Queue(context.Background()); return q.Models[0].Waiting == 3 })
	if status, head, text := send(t, a, "X-Spillway-Class", "batch"); status != 503 || head.Get("Retry-After") == "" || head.Get("X-Should-Retry") != "true" || !strings.Contains(text, "no_capacity") {
		t.Errorf("%d %v %q", status, head, text)
	}
	if n, _ := testutil.GatherAndCount(reg, "spillway_local_queue_refusals_total"); n == 0 {
		t.Error("the refusal was not counted")
	}
	for range 4 {
		w.release <- struct{}{}
	}
	wg.Wait()
}

func TestARequestThatWouldWaitPastItsTimeoutIsAnsweredInTime(t *testing.T) {
	w := newVLLM(t, "w1")
	w.kv = 4
	a := start(t, nil, w)
	w.set("hold")
	var wg sync.WaitGroup
	wg.Go(func() { send(t, a, "X-Test", "1") })
	eventually(t, "one running", func() bool { return w.running.Load() == 1 })
	began := time.Now()
	if status, _, text := send(t, a, "X-Request-Timeout-Ms", "100"); status != 504 || !strings.Contains(text, "deadline_unmeetable") {
		t.Errorf("%d %q", status, text)
	}
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("refused after %v", d)
	}
	w.release <- struct{}{}
	wg.Wait()
}

func TestAWorkerIsWarmedUpBeforeItsFirstTraffic(t *testing.T) {
	w := newVLLM(t, "w1")
	var warmed atomic.Int64
	ok := make(chan struct{})
	inner := w.Config.Handler
	w.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/completions" {
			inner.ServeHTTP(rw, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"max_tokens":1`) {
			t.Errorf("the warm-up request is %q", body)
		}
		warmed.Add(1)
		<-ok
	})
	var a *local.Agent
	go func() {
		for warmed.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		close(ok)
	}()
	a = start(t, nil, w)
	if resp, text := post(t, a, streamed); resp.StatusCode != 200 || !strings.Contains(text, "[DONE]") {
		t.Fatalf("%d %q", resp.StatusCode, text)
	}
	if warmed.Load() != 1 {
		t.Errorf("%d warm-up requests, want 1", warmed.Load())
	}
}

func TestAnswersOfARemovedWorkerEndAtTheDrainDeadline(t *testing.T) {
	w1, w2 := newVLLM(t, "w1"), newVLLM(t, "w2")
	file := t.TempDir() + "/workers.yaml"
	write(t, file, w1)
	a := start(t, func(c *local.Config) {
		c.Workers, c.WorkersFile = nil, file
		c.Spec = &spec.Spec{Routing: spec.Routing{Health: spec.Healthing{DrainDeadline: spec.Duration(300 * time.Millisecond)}}}
	}, w1)
	w1.set("endless")
	resp, err := client.Post("http://"+a.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(final))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	r := bufio.NewReader(resp.Body)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "w0") {
		t.Fatalf("%q, %v", line, err)
	}
	write(t, file, w2)
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	text, _ := io.ReadAll(r)
	if d := time.Since(began); !strings.Contains(string(text), `"upstream_lost"`) || d > 3*time.Second {
		t.Errorf("ended after %v with %q", d, text)
	}
}

func TestALoneWorkerIsNotEjectedForErrorAnswers(t *testing.T) {
	w := newVLLM(t, "w1")
	inner := w.Config.Handler
	w.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/chat/completions" {
			http.Error(rw, "boom", http.StatusInternalServerError)
			return
		}
		inner.ServeHTTP(rw, r)
	})
	a := start(t, nil, w)
	for range 20 {
		if resp, text := post(t, a, whole); resp.StatusCode != 500 || !strings.Contains(text, "boom") {
			t.Fatalf("%d %q", resp.StatusCode, text)
		}
	}
	if ready(a) != 1 {
		t.Errorf("the only worker is %+v", a.Status().Workers[0])
	}
}
