package local_test

import (
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// addIneligibleWorkers adds workers that are ineligible for the model: one of another model and one that never
// answered.
func addIneligibleWorkers(c *local.Config) {
	c.Workers = append(c.Workers,
		discover.Worker{Name: "other", URL: "http://127.0.0.1:9", Models: []string{"a", "b", "c", "d", "e"}},
		discover.Worker{Name: "silent", URL: "http://127.0.0.1:10"})
}

// ineligibleReasons returns the reason of every worker in an explanation; empty for one that is eligible.
func ineligibleReasons(t *testing.T, recs []explain.Explanation, err error) map[string]string {
	t.Helper()
	if err != nil || len(recs) != 1 {
		t.Fatalf("%+v, %v", recs, err)
	}
	out := map[string]string{}
	for _, c := range recs[0].Candidates {
		if _, twice := out[c.Name]; twice {
			t.Errorf("worker %s is listed twice", c.Name)
		}
		if c.IneligibleReason == "" && len(c.Terms) == 0 {
			t.Errorf("worker %s has neither a cost nor a reason", c.Name)
		}
		out[c.Name] = c.IneligibleReason
	}
	return out
}

func TestExplainGivesReasonForEveryIneligibleWorker(t *testing.T) {
	p := newGatewayHarness(t)
	ok, broken, full := newFakeVLLM(t, "ok"), newFakeVLLM(t, "broken"), newFakeVLLM(t, "full")
	a := startAgent(t, func(c *local.Config) { p.joinGateway(c); addIneligibleWorkers(c) }, ok, broken, full, newFakeVLLM(t, "drained"))
	p.directive.Store(&uplink.Directive{Index: 5, SpecVersion: 1, Spec: []byte(specText), Drains: []uplink.ActiveDrain{{Path: "us/us-a/drained"}}})
	p.parent.PushDirectives()
	broken.CloseClientConnections()
	broken.Close()
	full.setMode("hold")
	full.kvUsage.Store(1)
	held := make(chan struct{})
	go func() { // sent by another client
		defer close(held)
		if resp, err := testClient.Post(full.URL+"/v1/chat/completions", "application/json", strings.NewReader(nonStreamingChat)); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}()
	var got map[string]string
	want := map[string]string{"ok": "", "full": "no free KV cache", "drained": "draining", "silent": "not ready: GET /v1/models: connection refused (", "other": "another model: serves a, b, c, d and 1 more"}
	testkit.Eventually(t, "every worker with its reason", func() bool {
		recs, err := a.Explain(admin.ExplainQuery{Model: "llama-3.1-8b", PromptTokens: 100})
		got = ineligibleReasons(t, recs, err)
		if got["ok"] != "" || recs[0].Chosen != "ok" || !strings.Contains(got["broken"], "ejected: ") {
			return false
		}
		for name, why := range want {
			if got[name] != why && !(name == "silent" && strings.HasPrefix(got[name], why)) {
				return false
			}
		}
		return len(got) == 6
	})
	close(full.release)
	<-held
	recs, err := a.Explain(admin.ExplainQuery{Model: "unserved"})
	if got = ineligibleReasons(t, recs, err); len(got) != 6 || recs[0].Chosen != "" || !strings.HasPrefix(got["ok"], "another model: serves llama") {
		t.Errorf("for a model without workers: %v, chosen %q", got, recs[0].Chosen)
	}
}

func TestExplainListsEveryWorkerUnderEveryPolicy(t *testing.T) {
	w1, w2 := newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2")
	for _, policy := range spec.WorkerPolicies() {
		t.Run(policy, func(t *testing.T) {
			a := startAgent(t, func(c *local.Config) { c.Policy = policy; addIneligibleWorkers(c) }, w1, w2)
			recs, err := a.Explain(admin.ExplainQuery{Model: "llama-3.1-8b", PromptTokens: 500})
			if got := ineligibleReasons(t, recs, err); len(got) != 4 || recs[0].Chosen == "" || recs[0].Policy != policy {
				t.Errorf("%s chose %q and listed %v", recs[0].Policy, recs[0].Chosen, got)
			}
		})
	}
}

// TestExplainPredictsQueueing: Explain shows how the queue would treat such a request, without queueing it.
func TestExplainPredictsQueueing(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	w.kvBlocks = 4
	a := startAgent(t, func(c *local.Config) { c.Queue.MaxItems, c.Queue.TenantShare = 4, 0.5 }, w)
	says := func(want string, q admin.ExplainQuery) {
		t.Helper()
		q.Model = "llama-3.1-8b"
		var notes []string
		testkit.Eventually(t, "queue: "+want, func() bool {
			recs, err := a.Explain(q)
			if err != nil {
				t.Fatal(err)
			}
			notes = recs[0].Notes
			return slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, "queue: "+want) })
		})
	}
	says("sent at once", admin.ExplainQuery{PromptTokens: 5})
	says("refused: longer than", admin.ExplainQuery{PromptTokens: 100_000})
	w.setMode("hold")
	var wg sync.WaitGroup
	wg.Go(func() { postWithHeader(t, a, "X-Test", "1") })
	testkit.Eventually(t, "one running", func() bool { return w.running.Load() == 1 })
	says("waits", admin.ExplainQuery{PromptTokens: 5})
	for range 2 {
		wg.Go(func() { postWithHeader(t, a, "X-Test", "1") })
	}
	says("refused: tenant_full: try again in 10s", admin.ExplainQuery{PromptTokens: 5, Tenant: "default"})
	for range 3 {
		w.release <- struct{}{}
	}
	wg.Wait()
}

// TestExplainUsesTheGivenTenantAndPrompt: an explain query without a tenant gets no note about one, and its prompt
// has the stated length.
func TestExplainUsesTheGivenTenantAndPrompt(t *testing.T) {
	a := startAgent(t, addIneligibleWorkers, newFakeVLLM(t, "w1"))
	testkit.Eventually(t, "the worker is ready", func() bool {
		recs, err := a.Explain(admin.ExplainQuery{Model: "llama-3.1-8b", PromptTokens: 1000})
		return err == nil && recs[0].Chosen == "w1"
	})
	recs, err := a.Explain(admin.ExplainQuery{Model: "llama-3.1-8b", PromptTokens: 1000})
	if err != nil || !strings.Contains(recs[0].Query, "1000") {
		t.Errorf("the query is %q, %v; want 1000 prompt tokens in it", recs[0].Query, err)
	}
	for _, note := range recs[0].Notes {
		if strings.Contains(note, "tenant  ") {
			t.Errorf("a note names no tenant: %q", note)
		}
	}
}

// TestStatusOfStandaloneZone: it has a spec file or none, and no versions. It explains a choice for a query without a
// tenant.
func TestStatusOfStandaloneZone(t *testing.T) {
	_, c, _ := startAgentWithAdmin(t, nil, newFakeVLLM(t, "w1"))
	s, err := c.GetStatus(t.Context())
	if err != nil || s.SpecFile == nil || s.SpecFile.Path != "" {
		t.Errorf("%+v %v", s, err)
	}
	out, err := c.ExplainRequest(t.Context(), admin.ExplainQuery{Model: "llama-3.1-8b"})
	if err != nil || len(out.Records) != 1 || out.Records[0].Chosen != "w1" {
		t.Errorf("%+v %v", out, err)
	}
}
