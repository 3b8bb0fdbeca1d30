package regional_test

import (
	"net/http"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/decision"
	"github.com/spillway-lb/spillway/internal/decisionfile"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/regional"
	"github.com/spillway-lb/spillway/regional/routing"
)

// traceAt asks a gateway's admin socket.
func traceAt(t *testing.T, socket, id string) *admin.TraceAnswer {
	t.Helper()
	c, err := admin.Dial(socket, nil)
	requireNoError(t, err)
	defer c.Close()
	out, err := c.TraceRequest(t.Context(), id)
	requireNoError(t, err)
	return out
}

// TestTraceShowsRetriedAndRefusedRequests follows requests through the gateway: a retry in the other zone has two choices, and a
// refused one has an end with its code.
func TestTraceShowsRetriedAndRefusedRequests(t *testing.T) {
	w := newWorld(t)
	socket := t.TempDir() + "/a.sock"
	g := w.startGateway("fra", func(c *regional.Config) { c.DecisionBytes, c.AdminSocket = 1<<20, socket })
	w.startLocal(g, "fra", "fra-a", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, roomyModel("small"))
	w.waitUntilServed(g, "small")
	resp, _ := w.getAnswer(g, clientCall{key: "key-acme", body: askBody, header: http.Header{"X-Request-Id": {"lost"}}})
	w.startLocal(g, "fra", "fra-b", replyCompletion, roomyModel("small"))
	var served *admin.TraceAnswer
	testkit.Eventually(t, "a request is retried in zone fra-b", func() bool {
		resp, _ := w.getAnswer(g, clientCall{key: "key-acme", body: askBody, header: http.Header{"X-Request-Id": {"retried"}}})
		if resp.StatusCode != http.StatusOK {
			return false
		}
		served = traceAt(t, socket, resp.Header.Get("X-Request-Id"))
		n := len(served.Steps)
		return n > 2 && served.Steps[n-1].Attempts == 2
	})
	n := len(served.Steps)
	first, second, end := &served.Steps[n-3], &served.Steps[n-2], &served.Steps[n-1]
	// Zone fra-a may be out of service after its failures, and is chosen as the last resort until fra-b has reported.
	if first.Event != "choice" || first.Chosen != "fra/fra-a/l1" || len(first.Candidates) == 0 || len(first.Candidates[0].Terms) == 0 && first.Candidates[0].IneligibleReason == "" {
		t.Errorf("first choice %+v", first)
	}
	if second.Event != "choice" || second.Chosen != "fra/fra-b/l1" {
		t.Errorf("second choice %+v", second)
	}
	if end.Event != "end" || end.Outcome != "served" || end.Status != 200 || end.Tenant != "acme" || end.Model != "small" {
		t.Errorf("end %+v", end)
	}
	lost := traceAt(t, socket, resp.Header.Get("X-Request-Id"))
	if n := len(lost.Steps); n < 2 || lost.Steps[n-1].Outcome != "failed" || lost.Steps[n-1].Status != resp.StatusCode {
		t.Errorf("a lost request, status %d: %+v", resp.StatusCode, lost.Steps)
	}
	w.getAnswer(g, clientCall{key: "unknown", body: askBody, header: http.Header{"X-Request-Id": {"refused"}}})
	if got := traceAt(t, socket, "refused"); len(got.Steps) != 1 || got.Steps[0].Outcome != "refused" || got.Steps[0].Reason == "" {
		t.Errorf("a refused request: %+v", got.Steps)
	}
	if len(served.Nodes) == 0 || served.Nodes[0].Records == 0 {
		t.Errorf("asked nodes %+v", served.Nodes)
	}
}

// TestDecisionFileIsReplayed sends requests through a gateway and reads its file: every choice replays bit-equal.
func TestDecisionFileIsReplayed(t *testing.T) {
	w := newWorld(t)
	file := t.TempDir() + "/decisions"
	g := w.startGateway("fra", func(c *regional.Config) { c.DecisionBytes, c.DecisionFile, c.DecisionFileBytes = 1<<20, file, 1<<20 })
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.startLocal(g, "fra", "fra-b", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	const n = 40
	for range n {
		if resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: askBody}); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.StatusCode, body)
		}
	}
	requireNoError(t, g.Stop(stopContext(t)))
	p, choices, ends := routing.NewReplayer(), 0, 0
	torn, err := decisionfile.ReadFile(file, func(rec *decision.Record) error {
		switch rec.Event {
		case decision.EventState:
			return p.AddState(rec)
		case decision.EventEnd:
			ends++
			return nil
		}
		c, err := p.ReplayChoice(rec, nil)
		if choices++; err != nil || !c.IsEqual() {
			t.Errorf("choice %d was %+v, and replayed %+v, %v", choices, c.Was, c.Now, err)
		}
		return nil
	})
	if err != nil || torn || choices < n || ends < n {
		t.Errorf("%d choices, %d ends, torn %v, %v", choices, ends, torn, err)
	}
}
