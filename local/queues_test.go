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
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/timed"
	"github.com/spillway-lb/spillway/local"
)

// oneSlotChat takes 64 tokens: with this body one request at a time.
const oneSlotChat = `{"model":"llama-3.1-8b","stream":true,"max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`

// postWithHeader posts with a header and returns the status, the answer's head and its body.
func postWithHeader(t *testing.T, a *local.Agent, name, value string) (int, http.Header, string) {
	t.Helper()
	req, _ := http.NewRequest(http.MethodPost, "http://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(oneSlotChat))
	req.Header.Set(name, value)
	resp, err := testClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, nil, ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(text)
}

func TestQueueIsShownAndCounted(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	w.kvBlocks = 4
	dir, err := os.MkdirTemp("", "q") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "a", "admin.sock")
	reg := telemetry.NewRegistry("local", "a", "test")
	a := startAgent(t, func(c *local.Config) {
		c.AdminSocket, c.Registry = socket, reg
		c.Spec = &spec.Spec{Routing: spec.Routing{Queue: spec.QueuePolicy{MaxRequests: 3, TenantShare: 1}}}
	}, w)
	w.setMode("hold")
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { postWithHeader(t, a, "X-Spillway-Class", "interactive") })
	}
	c, err := admin.Dial(socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var q *admin.QueueAnswer
	testkit.Eventually(t, "one running and two waiting", func() bool {
		q, err = c.GetQueue(context.Background())
		return err == nil && len(q.Models) == 1 && q.Models[0].Waiting == 2 && q.Models[0].Classes[0].Running == 1
	})
	m := q.Models[0]
	if k := m.Classes[0]; q.Node != "us/us-a/a" || m.MaxWaiting != 3 || k.Class != "interactive" || len(k.Tenants) != 1 || k.Tenants[0].Waiting != 2 || k.Passed != 1 || m.Bytes == 0 {
		t.Errorf("queue is %+v", q)
	}
	// The batch class may fill half of three: one waits, the next is refused.
	wg.Go(func() { postWithHeader(t, a, "X-Spillway-Class", "batch") })
	testkit.Eventually(t, "a batch request waiting", func() bool { q, _ = c.GetQueue(context.Background()); return q.Models[0].Waiting == 3 })
	if status, head, text := postWithHeader(t, a, "X-Spillway-Class", "batch"); status != 503 || head.Get("Retry-After") == "" || head.Get("X-Should-Retry") != "true" || !strings.Contains(text, "no_capacity") {
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

func TestRequestThatCannotMeetItsDeadlineIsRefusedInTime(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	w.kvBlocks = 4
	a := startAgent(t, nil, w)
	w.setMode("hold")
	var wg sync.WaitGroup
	wg.Go(func() { postWithHeader(t, a, "X-Test", "1") })
	testkit.Eventually(t, "one running", func() bool { return w.running.Load() == 1 })
	began := time.Now()
	if status, _, text := postWithHeader(t, a, "X-Request-Timeout-Ms", "100"); status != 504 || !strings.Contains(text, "deadline_unmeetable") {
		t.Errorf("%d %q", status, text)
	}
	timed.AssertWithin(t, "the refusal", time.Since(began), 2*time.Second)
	w.release <- struct{}{}
	wg.Wait()
}

func TestAWorkerIsWarmedUpBeforeItsFirstTraffic(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	var warmed atomic.Int64
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
	})
	a := startAgent(t, nil, w)
	if resp, text := postChat(t, a, streamedChat); resp.StatusCode != 200 || !strings.Contains(text, "[DONE]") {
		t.Fatalf("%d %q", resp.StatusCode, text)
	}
	if warmed.Load() != 1 {
		t.Errorf("%d warm-up requests, want 1", warmed.Load())
	}
}

func TestAnswersOfARemovedWorkerEndAtTheDrainDeadline(t *testing.T) {
	w1, w2 := newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2")
	file := t.TempDir() + "/workers.yaml"
	writeWorkersFile(t, file, w1)
	a := startAgent(t, func(c *local.Config) {
		c.Workers, c.WorkersFile = nil, file
		c.Spec = &spec.Spec{Routing: spec.Routing{Health: spec.HealthPolicy{DrainDeadline: spec.Duration(300 * time.Millisecond)}}}
	}, w1)
	w1.setMode("endless")
	resp, err := testClient.Post("http://"+a.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(unresumableChat))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	r := bufio.NewReader(resp.Body)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "w0") {
		t.Fatalf("%q, %v", line, err)
	}
	writeWorkersFile(t, file, w2)
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	text, _ := io.ReadAll(r)
	if !strings.Contains(string(text), `"upstream_lost"`) {
		t.Errorf("ended with %q", text)
	}
	timed.AssertWithin(t, "the end of a removed worker's answer", time.Since(began), 3*time.Second)
}

func TestOnlyWorkerIsNotEjectedForErrorAnswers(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	inner := w.Config.Handler
	w.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/chat/completions" {
			http.Error(rw, "boom", http.StatusInternalServerError)
			return
		}
		inner.ServeHTTP(rw, r)
	})
	a := startAgent(t, nil, w)
	for range 20 {
		if resp, text := postChat(t, a, nonStreamingChat); resp.StatusCode != 500 || !strings.Contains(text, "boom") {
			t.Fatalf("%d %q", resp.StatusCode, text)
		}
	}
	if countReady(a) != 1 {
		t.Errorf("the only worker is %+v", a.Status().Workers[0])
	}
}
