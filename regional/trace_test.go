package regional_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/tracing"
	"github.com/spillway-lb/spillway/internal/tracing/tracetest"
	"github.com/spillway-lb/spillway/regional"
)

// TestTraceOfSpilledRequest follows one request from its client's span through two gateways to the zone that gets it.
func TestTraceOfSpilledRequest(t *testing.T) {
	const trace, client = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	receiver := tracetest.StartGRPC(t)
	traced := func(c *regional.Config) {
		c.Tracing = tracing.Config{Endpoint: receiver.URL, Protocol: tracing.ProtocolGRPC, Errors: true, FollowParent: true}
	}
	r := newConfiguredPeerRegions(t, traced, traced)
	zone := make(chan string, 16)
	r.startLocal(r.iad, "iad", "iad-a", func(rw http.ResponseWriter, q *http.Request) {
		zone <- q.Header.Get("Traceparent")
		replyCompletion(rw, q)
	}, roomyModel("small"))
	r.waitForWorkerTotal("iad", 2)
	resp, _ := r.getAnswer(r.fra, clientCall{key: "key-acme", body: askBody, header: http.Header{"Traceparent": {"00-" + trace + "-" + client + "-01"}}})
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d", resp.StatusCode)
	}
	byID := map[string]tracetest.ReceivedSpan{}
	find := func(name, parent string) (out tracetest.ReceivedSpan) {
		for _, s := range byID {
			if s.Name == name && s.ParentHex() == parent {
				out = s
			}
		}
		return out
	}
	testkit.Eventually(t, "both gateways have exported", func() bool {
		for _, s := range receiver.Spans() {
			byID[s.SpanHex()] = s
		}
		roots := 0
		for _, s := range byID {
			if s.Name == "chat small" {
				roots++
			}
		}
		return roots == 2
	})
	for _, s := range byID {
		if s.TraceHex() != trace || strings.Contains(s.String(), "secret of the prompt") || strings.Contains(s.String(), "key-acme") {
			t.Errorf("span %v", s)
		}
	}
	parent, last := client, ""
	for _, gateway := range []string{"fra", "iad"} {
		root := find("chat small", parent)
		if root.Span == nil {
			t.Fatalf("%s has no span under %s: %v", gateway, parent, byID)
		}
		if tenant, _ := root.FindAttr("spillway.tenant"); tenant != "acme" || find("admission", root.SpanHex()).Span == nil || find("choice", root.SpanHex()).Span == nil {
			t.Errorf("%s: %v", gateway, root)
		}
		attempt := find("attempt", root.SpanHex())
		if attempt.Span == nil || find("prefill", attempt.SpanHex()).Span == nil || find("decode", attempt.SpanHex()).Span == nil {
			t.Fatalf("%s has no whole attempt: %v", gateway, byID)
		}
		parent, last = attempt.SpanHex(), attempt.SpanHex()
	}
	if got := <-zone; got != "00-"+trace+"-"+last+"-01" {
		t.Errorf("the zone got %s, want the span %s", got, last)
	}
}
