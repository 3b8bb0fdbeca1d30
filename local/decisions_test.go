package local_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/local"
)

// traceAt returns what an agent has recorded about a request.
func traceAt(t *testing.T, a *local.Agent, id string) *admin.TraceAnswer {
	t.Helper()
	out, err := a.AdminBackend().Trace(t.Context(), admin.TraceQuery{RequestID: id})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRequestsAreTracedOnTheLoopAndWithoutIt traces a request by the id in its response.
func TestRequestsAreTracedOnTheLoopAndWithoutIt(t *testing.T) {
	for _, without := range []bool{false, true} {
		t.Run(fmt.Sprint("without loop ", without), func(t *testing.T) {
			w1, w2 := newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2")
			a := startAgent(t, func(c *local.Config) { c.DecisionBytes, c.NoFastPath = 1<<20, without }, w1, w2)
			resp, text := postChat(t, a, shortChat)
			id := resp.Header.Get("X-Request-Id")
			if resp.StatusCode != http.StatusOK || id == "" {
				t.Fatalf("%d %q %s", resp.StatusCode, id, text)
			}
			out := traceAt(t, a, id)
			if len(out.Steps) != 2 {
				t.Fatalf("steps %+v, want a choice and an end", out.Steps)
			}
			c, e := &out.Steps[0], &out.Steps[1]
			if c.Event != "choice" || c.Considered != 2 || len(c.Candidates) != 2 || c.Candidates[0].Name != c.Chosen || len(c.Candidates[0].Terms) < 3 || c.PromptTokens == 0 {
				t.Errorf("choice %+v", c)
			}
			if e.Event != "end" || e.Outcome != "served" || e.Status != 200 || e.Chosen != c.Chosen || e.FirstByteSeconds <= 0 || e.Seconds < e.FirstByteSeconds {
				t.Errorf("end %+v", e)
			}
			if b, _ := json.Marshal(out); strings.Contains(string(b), "hello") {
				t.Errorf("the trace has the prompt: %s", b)
			}
			resp, _ = postChat(t, a, `{"model":"absent","messages":[]}`)
			if out := traceAt(t, a, resp.Header.Get("X-Request-Id")); len(out.Steps) != 1 && resp.Header.Get("X-Request-Id") != "" {
				t.Errorf("a refused request: %+v", out.Steps)
			}
		})
	}
}

// TestTraceOfAnUnknownRequestDescribesTheLog has the count and the age of what is kept.
func TestTraceOfAnUnknownRequestDescribesTheLog(t *testing.T) {
	a := startAgent(t, func(c *local.Config) { c.DecisionBytes = 1 << 20 }, newFakeVLLM(t, "w1"))
	postChat(t, a, shortChat)
	out := traceAt(t, a, "unknown")
	if len(out.Steps) != 0 || len(out.Nodes) != 1 || out.Nodes[0].Records < 1 || out.Nodes[0].Oldest.IsZero() || out.Nodes[0].Off {
		t.Errorf("%+v", out)
	}
	off := startAgent(t, nil, newFakeVLLM(t, "w1"))
	if out := traceAt(t, off, "unknown"); !out.Nodes[0].Off {
		t.Errorf("without a log: %+v", out)
	}
}
