package local_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/timed"
	"github.com/spillway-lb/spillway/internal/uplink"
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

// startAgentWithAdmin starts an agent with an admin socket and a metrics listener, and returns a client for the one and the address of
// the other.
func startAgentWithAdmin(t *testing.T, models []spec.Model, workers ...*fakeVLLM) (*local.Agent, *admin.Client, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "a.sock")
	a := startAgent(t, func(c *local.Config) {
		c.Spec = &spec.Spec{Models: models}
		c.AdminSocket, c.MetricsListen = socket, "127.0.0.1:0"
	}, workers...)
	c, err := admin.Dial("unix://"+socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return a, c, a.MetricsAddr().String()
}

// TestKEDAReadsTheExample asks as KEDA would by the example file, and follows its paths.
func TestKEDAReadsTheExample(t *testing.T) {
	_, _, addr := startAgentWithAdmin(t, nil, newFakeVLLM(t, "w1"))
	text, err := os.ReadFile("../deploy/kubernetes/keda.yaml")
	if err != nil {
		t.Fatal(err)
	}
	urls := regexp.MustCompile(`url: "(.*)"`).FindAllStringSubmatch(string(text), -1)
	paths := regexp.MustCompile(`valueLocation: "(.*)"`).FindAllStringSubmatch(string(text), -1)
	if len(urls) != 2 || len(paths) != 2 {
		t.Fatalf("%d urls and %d paths", len(urls), len(paths))
	}
	for i := range urls {
		u, err := url.Parse(urls[i][1])
		if err != nil {
			t.Fatal(err)
		}
		resp, err := testClient.Get("http://" + addr + u.RequestURI())
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s %v", resp.StatusCode, body, err)
		}
		v, err := lookupPath(body, paths[i][1])
		if n, ok := v.(float64); err != nil || !ok || n < 0 {
			t.Errorf("%s is %v, %v in %s", paths[i][1], v, err, body)
		}
	}
	if resp, err := testClient.Get("http://" + addr + "/v1/autoscaling?model=unknown"); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("%v %v", resp, err)
	} else {
		_ = resp.Body.Close()
	}
}

// lookupPath takes a path of names and indexes, the part of GJSON's paths that the example uses.
func lookupPath(text []byte, path string) (any, error) {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(x) {
				return nil, fmt.Errorf("no index %q", part)
			}
			v = x[i]
		default:
			return nil, fmt.Errorf("nothing at %q", part)
		}
	}
	return v, nil
}

// TestRefusedRequestsCountAsDemand: requests for a model without workers are refused and count as demand.
func TestRefusedRequestsCountAsDemand(t *testing.T) {
	none := 0
	_, c, _ := startAgentWithAdmin(t, []spec.Model{{Name: "absent", Autoscaling: spec.Autoscaling{Min: &none}}, {Name: "unasked", Autoscaling: spec.Autoscaling{Min: &none}}}, newFakeVLLM(t, "w1"))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	// The agent that start made is found through its own status: the socket is all that an operator has.
	st, err := c.GetStatus(ctx)
	if err != nil {
		t.Fatal(err)
	}
	endpoint := st.Regions[0].Zones[0].Endpoint
	long := `{"model":"absent","max_tokens":64,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 4000) + `"}]}`
	for range 20 {
		resp, err := testClient.Post("http://"+endpoint+"/v1/chat/completions", "application/json", strings.NewReader(long))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode/100 == 2 {
			t.Fatal("the request was served")
		}
	}
	var got *admin.AutoscalingAnswer
	testkit.Eventually(t, "the refused requests are demand", func() bool {
		got, err = c.GetAutoscaling(ctx, "absent")
		return err == nil && len(got.Models) == 1 && got.Models[0].Desired >= 1
	})
	if m := got.Models[0]; m.Ready != 0 || m.Demand.Prefill < 1000 || m.Needed <= 0 || m.Saturation <= 0 {
		t.Errorf("%+v", m)
	}
	all, err := c.GetAutoscaling(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all.Models {
		if m.Model == "unasked" && m.Desired != 0 {
			t.Errorf("without demand, the model unasked wants %+v", m)
		}
	}
}

// Only tenants of one prefix group are sent to where another of them has left its prompt's beginning.
func TestPrefixesAreSharedOnlyWithinAPrefixGroup(t *testing.T) {
	p := newGatewayHarness(t)
	a := startAgent(t, p.joinGateway, newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2"), newFakeVLLM(t, "w3"), newFakeVLLM(t, "w4"))
	text := strings.Replace(specText, "tenants: []", "tenants: [{name: ann, prefix_group: team}, {name: bob, prefix_group: team}, {name: eve}, {name: team}]", 1)
	text = strings.Replace(text, "least_connections", "prefix_affinity", 1)
	p.directive.Store(&uplink.Directive{Index: 5, SpecVersion: 1, Spec: []byte(text)})
	p.parent.PushDirectives()
	testkit.Eventually(t, "the spec in force", func() bool { return a.SpecVersion() == 1 })
	body := strings.Replace(nonStreamingChat, "hi", strings.Repeat("the same long beginning ", 200), 1)
	_, _, err := p.postFromGateway(p.gateway, a, forward.Hop{Tenant: "ann"}, body)
	if err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]bool{"ann": true, "bob": true, "eve": false, "team": false, "stranger": false} {
		if got := a.HasCachedPrefix(tenant, "llama-3.1-8b", body); got != want {
			t.Errorf("the beginning of ann's prompt is known under %s: %v", tenant, got)
		}
	}
}

// TestTrustedTenantFairnessIDsQueueSeparately: the callers that a trusted tenant distinguishes are queued separately.
// Those of other tenants are not.
func TestTrustedTenantFairnessIDsQueueSeparately(t *testing.T) {
	for trusted, want := range map[bool][]string{true: {"default user-1", "default user-2"}, false: {"default"}} {
		w := newFakeVLLM(t, "w1")
		w.kvBlocks = 4
		a := startAgent(t, func(c *local.Config) {
			c.Spec = &spec.Spec{Tenants: []spec.Tenant{{Name: spec.DefaultTenant, Weight: 1, Trusted: trusted}}}
		}, w)
		w.setMode("hold")
		var wg sync.WaitGroup
		for _, id := range []string{"user-1", "user-2"} {
			wg.Go(func() { postWithHeader(t, a, "X-Gateway-Inference-Fairness-Id", id) })
		}
		testkit.Eventually(t, "both are there, each under its name", func() bool {
			var seen []string
			n := 0
			for _, m := range a.DescribeQueues() {
				for _, c := range m.Classes {
					for _, x := range c.Tenants {
						seen = append(seen, x.Tenant)
						n += x.Waiting + x.Running
					}
				}
			}
			slices.Sort(seen)
			return n == 2 && slices.Equal(seen, want)
		})
		for range 2 {
			w.release <- struct{}{}
		}
		wg.Wait()
	}
}
